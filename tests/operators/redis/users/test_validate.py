"""What is wrong with declared users, by field and with a remedy."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from tests.operators.redis.users.scene import OFF, declared

from mooring.operators.redis.users.types import DefaultUserSpec, UserSpec
from mooring.operators.redis.users.validate import users_faults

IMAGES = {"spec.image": "redis:7.0"}


def faults(
    *users: UserSpec, default: DefaultUserSpec | None = None, images: Mapping[str, str] = IMAGES
) -> list[str]:
    return [str(one) for one in users_faults(list(users), default, images=images)]


def test_a_whole_declaration_has_no_fault() -> None:
    rules = ("~a:*", "%R~b:*", "&news", "+@read", "-@dangerous", "+config|get", "(~c", "+get)", "allkeys")
    assert faults(declared("app", *rules), default=OFF) == []
    assert faults(declared("app", "~a:* +@read")) == []


@pytest.mark.parametrize("name", ["mooring-operator", "mooring-new", "Mooring", "default"])
def test_names_that_the_operator_owns_are_refused(name: str) -> None:
    (said,) = faults(declared(name))
    assert said.startswith("spec.users[0].name: ")
    assert said.endswith("choose another") or "spec.defaultUser" in said


@pytest.mark.parametrize("name", ["a b", "a\n", "ä", "x" * 65, "a>b"])
def test_names_that_redis_could_not_keep_are_refused(name: str) -> None:
    (said,) = faults(declared(name))
    assert said.startswith("spec.users[0].name: ")


def test_two_users_of_one_name_are_refused() -> None:
    assert faults(declared("one"), declared("two"), declared("one")) == [
        "spec.users[2].name: one is declared in spec.users[0] too; remove one of them"
    ]


@pytest.mark.parametrize("rule", [">secret", "#" + "a" * 64, "<old", "!hash"])
def test_passwords_do_not_belong_into_rules_and_are_not_repeated(rule: str) -> None:
    (said,) = faults(declared("app", "+get", rule))
    assert said.startswith("spec.users[0].rules[1]: passwords and their hashes")
    assert rule not in said


@pytest.mark.parametrize("rule", ["nopass", "reset", "on", "off", "resetpass", "get", "~a\n+@all", '~"a"'])
def test_other_words_are_refused(rule: str) -> None:
    (said,) = faults(declared("app", rule))
    assert said.startswith("spec.users[0].rules[0]: ")


def test_a_user_needs_a_password() -> None:
    (said,) = faults(declared("app", password_secrets=None))
    assert said == "spec.users[0].passwordSecrets: is missing; name a Secret with a password"


@pytest.mark.parametrize("image", ["redis:5.0.4-alpine", "redis:3.2"])
def test_images_of_before_6_0_are_refused_where_users_are_declared(image: str) -> None:
    images = {"spec.image": "redis:7.0", "spec.sentinel.image": image}
    assert faults(images=images) == []
    assert faults(default=DefaultUserSpec(mode="Unchanged"), images=images) == []
    for said, field in (
        (faults(declared(), images=images), "spec.users"),
        (faults(default=OFF, images=images), "spec.defaultUser"),
    ):
        assert said == [
            f"{field}: users need Redis 6.0 or later, and spec.sentinel.image is {image}; give a later image"
        ]


def test_rules_of_the_default_user_need_the_mode_for_them() -> None:
    (said,) = faults(default=DefaultUserSpec(mode="Off", rules=["+get"]))
    assert said.startswith("spec.defaultUser.rules: are used with mode Restricted alone")
    (said,) = faults(default=DefaultUserSpec(mode="Restricted", rules=["nopass"]))
    assert said.startswith("spec.defaultUser.rules[0]: ")
