"""A Secret that somebody empties or deletes is as it last was, of the same cluster alone."""

from __future__ import annotations

from mooring.kube.object import Key
from mooring.kube.objects.core import Secret
from mooring.kube.objects.meta import ObjectMeta
from mooring.operators.workload.credentials import Kept, kept_in
from mooring.operators.workload.kept_secrets import KeptSecrets

SHOP = Key("default", "shop")


def secret(**data: str) -> Secret:
    return Secret(metadata=ObjectMeta(name="shop"), data=data or None)


def test_what_is_lost_is_as_it_last_was() -> None:
    kept = KeptSecrets("password")
    assert kept.whole(SHOP, "1", None) is None
    for text in ("first", "second"):
        whole = secret(password=text)
        assert kept.whole(SHOP, "1", whole) is whole
        for lost in (None, secret(), secret(next="x")):
            assert kept.whole(SHOP, "1", lost) is whole


def test_an_empty_password_is_a_whole_one() -> None:
    kept, without = KeptSecrets("password"), secret(password="")
    assert kept.whole(SHOP, "1", without) is without
    assert kept.whole(SHOP, "1", None) is without
    assert kept_in(without, "declared") == Kept(password="")
    assert (
        kept_in(secret(next="bmV4dA=="), "declared") == kept_in(None, "declared") == Kept(password="declared")
    )


def test_another_cluster_of_the_name_begins_anew() -> None:
    kept, lost = KeptSecrets("password"), secret()
    kept.whole(SHOP, "1", secret(password="first"))
    assert kept.whole(SHOP, "2", lost) is lost
    kept.forget(SHOP)
    assert kept.whole(SHOP, "1", lost) is lost
