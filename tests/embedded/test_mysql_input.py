"""Bad input: refused, or named with field and remedy; what runs goes on, and nothing is lost."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest

from mooring.kube.errors import ApiError, NotFound
from mooring.kube.objects.core import Secret
from mooring.kube.objects.meta import ObjectMeta
from mooring.testing.bed import Bed
from mooring.testing.mysql_stage import MySQLStage, manifest

pytestmark = [pytest.mark.embedded, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(180)]


async def stalled(mysql: MySQLStage, *said: str) -> None:
    """Wait until the condition Stalled says all of this."""

    async def told() -> bool:
        status, _, message = await mysql.condition("Stalled")
        return status == "True" and all(part in message for part in said)

    await mysql.bed.until(told, f"the condition Stalled speaks of {said}", within=20)


async def put(mysql: MySQLStage, name: str, data: dict[str, str], *, of_type: str = "Opaque") -> None:
    """Make a Secret, in place of one of that name."""
    with suppress(NotFound):
        await mysql.bed.client.delete(Secret, name, namespace=mysql.namespace)
    metadata = ObjectMeta(name=name, namespace=mysql.namespace)
    await mysql.bed.client.apply(Secret(metadata=metadata, type=of_type, data=data), force=True)


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
        (
            {"config": {"server_id": "7", "log-bin": "other", "datadir": "/data"}},
            ("spec.config.server_id: ", "spec.config.log-bin: ", "spec.config.datadir: "),
        ),
        ({"image": "mysql:9.7"}, ("image",)),
        ({"flavor": "mysql"}, ("flavor",)),
        ({"credentialsSecret": "missing"}, ("missing",)),
    ],
)
async def test_a_running_cluster_goes_on_and_says_what_is_wrong(
    mysql: MySQLStage, spec: dict[str, Any], said: tuple[str, ...]
) -> None:
    before = {pod.metadata.uid for pod in await mysql.pods()}
    async with mysql.writing() as ledger:
        await mysql.patch(spec)
        await stalled(mysql, *said)
        await mysql.writes(ledger, 50)
    assert (await ledger.check()).lost_acknowledged == 0
    assert (await mysql.status()).phase == "Running"
    assert {pod.metadata.uid for pod in await mysql.pods()} == before

    await mysql.patch({key: "mariadb:10.11" if key == "image" else None for key in spec})
    await mysql.exact()


async def test_a_size_in_words_is_refused_and_changes_nothing(mysql: MySQLStage) -> None:
    before = await mysql.get()

    with pytest.raises(ApiError) as refused:
        await mysql.patch({"size": "three"})

    assert refused.value.status == 422
    assert "spec.size" in str(refused.value)
    assert await mysql.get() == before


@pytest.mark.nightly
async def test_what_exists_and_is_declared_otherwise_is_named_while_clients_write(mysql: MySQLStage) -> None:
    before = {pod.metadata.uid for pod in await mysql.pods()}
    await mysql.query(await mysql.primary(), "CREATE DATABASE old CHARACTER SET latin1", account="root")
    async with mysql.writing() as ledger:
        await mysql.patch({"databases": [{"name": "old", "characterSet": "utf8mb4"}]})
        await stalled(mysql, "spec.databases: old: it exists with latin1, not utf8mb4", "ALTER DATABASE")
        await mysql.patch({"databases": None, "storage": {"size": "500Mi"}})
        await stalled(mysql, "spec.storage.size", "500Mi", "1Gi")
        await mysql.writes(ledger, 50)
    assert (await ledger.check()).lost_acknowledged == 0
    assert {pod.metadata.uid for pod in await mysql.pods()} == before
    assert set((await mysql.capacities()).values()) == {"1Gi"}
    await mysql.patch({"storage": None})
    await mysql.exact()
    await mysql.query(await mysql.primary(), "DROP DATABASE old", account="root")


@pytest.mark.nightly
async def test_a_secret_with_passwords_that_loses_one_or_changes_its_type_stops_nothing(
    mysql: MySQLStage,
) -> None:
    own = await mysql.bed.get(Secret, mysql.names.credentials, mysql.namespace)
    copy = await mysql.bed.get(Secret, mysql.names.credentials_copy, mysql.namespace)
    given = own.data or {}
    root = {"root-password": given["root-password"]}
    before = {pod.metadata.uid for pod in await mysql.pods()}
    async with mysql.writing() as ledger:
        # The cluster's own: what is missing comes back, the type stays as it was made.
        lacking = {key: text for key, text in given.items() if key not in root}
        async with mysql.operators_away():
            await put(mysql, mysql.names.credentials, lacking, of_type="example.com/mine")

        async def back() -> bool:
            now = await mysql.bed.get(Secret, mysql.names.credentials, mysql.namespace)
            return now.data == given and now.type == "example.com/mine"

        await mysql.bed.until(back, "the lost entry is back", within=20)
        # The user's own.
        await put(mysql, "mine", root)
        await mysql.patch({"credentialsSecret": "mine"})
        await mysql.whole()
        await put(mysql, "mine", {"password": root["root-password"]}, of_type="kubernetes.io/basic-auth")
        await stalled(
            mysql, "spec.credentialsSecret: Secret mine with a key root-password does not exist; create it"
        )
        await mysql.writes(ledger, 50)
        await put(
            mysql, "mine", {**root, "password": root["root-password"]}, of_type="kubernetes.io/basic-auth"
        )
        await mysql.whole()
    assert (await ledger.check()).lost_acknowledged == 0
    await mysql.patch({"credentialsSecret": None})
    await mysql.exact()
    assert {pod.metadata.uid for pod in await mysql.pods()} == before
    assert (await mysql.bed.get(Secret, mysql.names.credentials_copy, mysql.namespace)).data == copy.data


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
