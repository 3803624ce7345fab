"""Bad input: refused, or named with field and remedy; what runs goes on, and nothing is lost."""

from __future__ import annotations

from typing import Any

import pytest

from mooring.kube.errors import ApiError
from mooring.testing.bed import Bed
from mooring.testing.mysql_stage import MySQLStage, manifest

pytestmark = [pytest.mark.embedded, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(90)]


@pytest.mark.parametrize(
    ("name", "spec", "said"),
    [
        ("none", {"size": 0}, "size"),
        ("many", {"size": 10}, "size"),
        ("n" * 60, {}, "longer than 48 characters; choose a shorter name"),
        ("two.parts", {}, "choose one without"),
        ("lax", {"durability": {"mode": "Loose"}}, "mode"),
        ("rooted", {"users": [{"name": "root", "passwordSecret": {"name": "x"}}]}, "operator"),
        ("both", {"storage": {"emptyDir": {}, "storageClass": "fast"}}, "emptyDir"),
    ],
)
async def test_what_can_never_work_is_refused_by_the_server_itself(
    mysql_plane: Bed, name: str, spec: dict[str, Any], said: str
) -> None:
    document = manifest(name)
    document["spec"].update(spec)

    with pytest.raises(ApiError) as refused:
        await mysql_plane.apply(document)

    assert refused.value.status == 422
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({"config": {"server_id": "7"}}, "server_id"),
        ({"image": "mysql:9.7"}, "image"),
        ({"flavor": "mysql"}, "flavor"),
        ({"credentialsSecret": "missing"}, "missing"),
    ],
)
async def test_a_running_cluster_goes_on_and_says_what_is_wrong(
    mysql: MySQLStage, spec: dict[str, Any], said: str
) -> None:
    before = {pod.metadata.uid for pod in await mysql.pods()}
    async with mysql.writing() as ledger:
        await mysql.patch(spec)

        async def told() -> bool:
            status, _, message = await mysql.condition("Stalled")
            return status == "True" and said in message

        await mysql.bed.until(told, f"the condition Stalled speaks of {said}", within=20)
        await mysql.writes(ledger, 50)
    assert (await ledger.check()).lost_acknowledged == 0
    assert (await mysql.status()).phase == "Running"
    assert {pod.metadata.uid for pod in await mysql.pods()} == before

    await mysql.patch({key: "mariadb:10.11" if key == "image" else None for key in spec})
    await mysql.exact()


async def test_a_cluster_whose_secret_is_missing_is_made_once_it_is_there(mysql_plane: Bed) -> None:
    stage = MySQLStage(mysql_plane, "later")
    await mysql_plane.apply(manifest("later", size=1, credentialsSecret="mine"))

    async def told() -> bool:
        return (await stage.condition("Stalled"))[1] == "CredentialsMissing"

    await mysql_plane.until(told, "it says what is missing", within=10)
    assert not await stage.pods()
    await mysql_plane.apply(
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": "mine", "namespace": "default"},
            "stringData": {"root-password": "of-my-own-choice-1"},
        }
    )
    await stage.exact()
    await stage.delete(claims=True)
