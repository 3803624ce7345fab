"""Accounts, databases, passwords, certificates and volumes of a MySQLCluster, on real MariaDB servers."""

from __future__ import annotations

import asyncio
import base64
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from tests.operators.workload.test_certificates import pair

from mooring.kube import MergePatch
from mooring.kube.objects.core import PersistentVolumeClaim, Secret
from mooring.kube.objects.meta import ObjectMeta
from mooring.local.controllers.pods import is_ready
from mooring.operators.mysql import OPERATOR, compatible
from mooring.operators.mysql.dial import Dial, DialError, Login
from mooring.operators.mysql.dialects import dialect_of
from mooring.operators.mysql.survey import read_server
from mooring.operators.workload.certificates import ends, trust
from mooring.operators.workload.removal import remove_clusters
from mooring.testing.mysql_stage import MySQLStage

pytestmark = [pytest.mark.embedded, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(180)]


async def put(mysql: MySQLStage, name: str, data: dict[str, str]) -> None:
    """Make or change a Secret of the user's."""
    one = Secret(metadata=ObjectMeta(name=name, namespace=mysql.namespace), data=data)
    await mysql.bed.client.apply(one, force=True)


def text(value: str) -> str:
    return base64.b64encode(value.encode()).decode()


def plain(value: str) -> str:
    return base64.b64decode(value).decode()


async def enters(mysql: MySQLStage, user: str, password: str, *, tls: ssl.SSLContext | None = None) -> bool:
    """Whether the primary lets an account in."""
    login = Login(user=user, passwords=(("it", password),), tls=tls)
    try:
        async with Dial().open(await mysql.address(await mysql.primary()), login) as link:
            await link.query("SELECT 1")
    except DialError:
        return False
    return True


async def certificate(mysql: MySQLStage, pod: str) -> str:
    """When the certificate that a server shows ends; "" for a server without."""
    login = replace(await mysql.login(), tls=trust({}))
    try:
        async with Dial().open(await mysql.address(pod), login) as link:
            return (await read_server(link, dialect_of(mysql.flavor))).certificate
    except DialError:
        return ""


async def applied(mysql: MySQLStage, name: str) -> None:
    async def there() -> bool:
        one = ((await mysql.status()).accounts or {}).get(name)
        return one is not None and one.state in ("Applied", "Changing")

    await mysql.bed.until(there, f"{name} is as declared", within=30)


async def grants(mysql: MySQLStage, name: str) -> set[str]:
    rows = await mysql.query(await mysql.primary(), f"SHOW GRANTS FOR {name}")
    return {str(next(iter(row.values()))).partition(" TO ")[0] for row in rows}


async def test_accounts_and_databases_are_made_and_corrected(mysql: MySQLStage) -> None:
    await put(mysql, "app", {"password": text("first-1")})
    await mysql.patch(
        {
            "users": [
                {
                    "name": "shop",
                    "host": "%",
                    "passwordSecret": {"name": "app"},
                    "grants": ["SELECT, INSERT ON shop.*"],
                }
            ],
            "databases": [{"name": "shop"}],
        }
    )
    await applied(mysql, "shop@%")
    assert await enters(mysql, "shop", "first-1")
    wanted = {"GRANT USAGE ON *.*", "GRANT SELECT, INSERT ON `shop`.*"}
    assert await grants(mysql, "shop") == wanted

    async with mysql.operators_away():
        primary = await mysql.primary()
        await mysql.query(primary, "REVOKE INSERT ON shop.* FROM shop")
        await mysql.query(primary, "GRANT DELETE ON sys.* TO shop")

    async def corrected() -> bool:
        return await grants(mysql, "shop") == wanted

    await mysql.bed.until(corrected, "the declared privileges are back", within=20)
    async with mysql.operators_away():
        await mysql.query(await mysql.primary(), "DROP USER shop")

    async def back() -> bool:
        return await enters(mysql, "shop", "first-1")

    await mysql.bed.until(back, "the account is back", within=20)
    await mysql.exact()


async def test_an_account_takes_both_passwords_while_it_changes(mysql: MySQLStage) -> None:
    await put(mysql, "app", {"password": text("second-2")})

    async def changed() -> bool:
        return await enters(mysql, "shop", "second-2")

    await mysql.bed.until(changed, "the new password counts", within=20)
    assert await enters(mysql, "shop", "first-1")
    assert not await enters(mysql, "shop", "third-3")


async def test_the_operators_own_passwords_change_under_load_and_nothing_is_lost(mysql: MySQLStage) -> None:
    before = {pod.metadata.uid for pod in await mysql.pods()}
    labels = ("root", "operator", "replication", "monitor")
    async with mysql.writing() as ledger:
        data = {f"{label}-password": text(f"new-{label}") for label in labels}
        await mysql.bed.client.patch(
            Secret, mysql.names.credentials, MergePatch({"data": data}), namespace=mysql.namespace
        )

        async def published() -> bool:
            copy = await mysql.bed.get(Secret, mysql.names.credentials_copy, mysql.namespace)
            return {label: (copy.data or {})[label] for label in data} == data

        await mysql.bed.until(published, "every server takes the new passwords", within=30)
        await mysql.writes(ledger, 100)
    assert (await ledger.check()).lost_acknowledged == 0
    await mysql.exact()
    assert await enters(mysql, "root", "new-root")
    assert {pod.metadata.uid for pod in await mysql.pods()} == before
    mysql.kill(await mysql.primary())  # replicas connect again, to a new primary, with the new password
    await mysql.exact()


@pytest.mark.parametrize("copy", [False, True], ids=["one", "both"])
async def test_a_secret_that_somebody_deletes_comes_back_with_the_same_passwords(
    mysql: MySQLStage, copy: bool
) -> None:
    old = await mysql.bed.get(Secret, mysql.names.credentials, mysql.namespace)
    for name in (mysql.names.credentials, mysql.names.credentials_copy)[: 1 + copy]:
        await mysql.bed.client.delete(Secret, name, namespace=mysql.namespace)

    async def back() -> bool:
        found = await mysql.bed.client.list(Secret, namespace=mysql.namespace)
        same = [one for one in found.items if one.metadata.name == mysql.names.credentials]
        return bool(same) and same[0].metadata.uid != old.metadata.uid and same[0].data == old.data

    await mysql.bed.until(back, "the Secret is back", within=20)
    await mysql.exact()


@pytest.mark.parametrize("how", ["deleted", "emptied"])
async def test_servers_whose_passwords_nobody_knows_any_more_serve_on_until_somebody_names_one(
    mysql: MySQLStage, how: str
) -> None:
    names, client = mysql.names, mysql.bed.client
    old = (await mysql.bed.get(Secret, names.credentials_copy, mysql.namespace)).data or {}
    before = {pod.metadata.uid for pod in await mysql.pods()}
    async with mysql.writing() as ledger:
        await mysql.bed.stop_operators()
        for name in (names.credentials, names.credentials_copy):
            if how == "deleted":
                await client.delete(Secret, name, namespace=mysql.namespace)
            else:
                await client.patch(Secret, name, MergePatch({"data": None}), namespace=mysql.namespace)
        await mysql.bed.start_operators()

        async def said() -> bool:
            return (await mysql.condition("Stalled"))[1] == "PasswordRefused"

        await mysql.bed.until(said, "it is said that no password is taken")
        said_so = (await mysql.condition("Stalled"))[2]
        assert f"kubectl create secret generic {names.credentials} --from-file=operator-password" in said_so
        await mysql.writes(ledger, 50)
        assert all(is_ready(pod) for pod in await mysql.pods())
        assert await enters(mysql, "root", plain(old["root-password"]))
        await put(mysql, names.credentials, {"operator-password": old["operator-password"]})
        await mysql.whole(within=60)
        ledger.login = await mysql.login("root")
        await mysql.writes(ledger, 50)
    assert (await ledger.check()).lost_acknowledged == 0
    await mysql.exact()
    new = (await mysql.bed.get(Secret, names.credentials, mysql.namespace)).data or {}
    assert new["operator-password"] == old["operator-password"]
    for account in ("root", "mooring_replication"):
        assert await enters(mysql, account, (await mysql.login(account)).passwords[0][1])
    assert {pod.metadata.uid for pod in await mysql.pods()} == before
    mysql.kill(await mysql.primary())  # replicas connect again, to a new primary, with the new password
    await mysql.exact()


async def verified(mysql: MySQLStage) -> None:
    """After a switch every replica checks that its source is the cluster's, and the one it names."""
    old = await mysql.primary()
    await mysql.switch(
        next(pod.metadata.name or "" for pod in await mysql.pods() if pod.metadata.name != old)
    )
    primary = await mysql.led_by_another(old)
    await mysql.exact()
    for pod in await mysql.pods():
        link = (await mysql.server(pod.metadata.name or "")).replication
        assert pod.metadata.name == primary or (link is not None and link.verifies and link.io_running)


@asynccontextmanager
async def connecting(mysql: MySQLStage, login: Login) -> AsyncIterator[list[str]]:
    """New encrypted connections to the primary's Service all through the block, one after another.

    Gives the end of the certificate that each was shown; one that fails ends the block with its error.
    """
    made: list[str] = []
    stop = asyncio.Event()

    async def connect() -> None:
        address = await mysql.served()
        while not stop.is_set():
            async with Dial().open(address, login) as link:
                made.append((await read_server(link, dialect_of(mysql.flavor))).certificate)

    task = asyncio.create_task(connect())
    try:
        yield made
    finally:
        stop.set()
        await task


async def test_a_certificate_is_replaced_without_a_restart(mysql: MySQLStage) -> None:  # trap 26
    now = datetime.now(UTC)
    await mysql.patch({"tls": {}})
    await mysql.whole(within=90)
    own = await mysql.bed.get(Secret, mysql.names.tls, mysql.namespace)

    async def shows(end: str) -> bool:
        return {await certificate(mysql, pod.metadata.name or "") for pod in await mysql.pods()} == {end}

    await mysql.bed.until(lambda: shows(ends(own.data or {})), "servers show the operator's", within=60)
    await verified(mysql)
    before = {pod.metadata.uid for pod in await mysql.pods()}
    mine = pair(days=(now - datetime(2026, 1, 1, tzinfo=UTC)).days + 40)
    encrypted = replace(await mysql.login("root"), tls=trust({}))
    async with mysql.writing(login=encrypted) as ledger, connecting(mysql, encrypted) as made:
        await put(mysql, "mine", mine)
        await mysql.patch({"tls": {"secretName": "mine"}})
        await mysql.bed.until(lambda: shows(ends(mine)), "servers show the user's", within=90)
        await mysql.writes(ledger, 50)
    report = await ledger.check()
    assert (report.lost_acknowledged, report.errors) == (0, {}), report.text()
    assert made[0] == ends(own.data or {})
    assert made[-1] == ends(mine)
    assert {pod.metadata.uid for pod in await mysql.pods()} == before

    await put(mysql, "mine", {**mine, "tls.key": pair()["tls.key"]})

    async def named() -> bool:
        _, reason, message = await mysql.condition("Stalled")
        return reason == "CertificateUnusable" and "tls.crt and tls.key do not belong together" in message

    await mysql.bed.until(named, "the pair that does not match is named", within=20)
    assert await shows(ends(mine))
    # A certificate that does not bear the pods' names is not checked: replicas follow its server all the same.
    mysql.kill(await mysql.primary())
    await mysql.exact()


async def test_the_tutorials_kind_needs_size_and_image_alone_and_is_removed_without_its_data(
    mysql: MySQLStage,
) -> None:
    bed, namespace = mysql.bed, "tutorial"
    await bed.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
    await bed.apply(
        {
            "apiVersion": "example.com/v1",
            "kind": "MySQLCluster",
            "metadata": {"name": "first", "namespace": namespace},
            "spec": {"size": 2, "image": "mariadb:10.11"},
        }
    )

    async def available() -> bool:
        one = await bed.get(compatible.MySQLCluster, "first", namespace)
        return one.status is not None and one.status.available_replicas == 2

    await bed.until(available, "both servers are available", within=60)
    change = MergePatch({"spec": {"storage": {"keepAfterDeletion": False}}})
    await bed.client.patch(compatible.MySQLCluster, "first", change, namespace=namespace)

    async def claims() -> list[bool]:
        """Of each claim, whether it goes with the cluster."""
        found = await bed.client.list(PersistentVolumeClaim, namespace=namespace)
        return [bool(one.metadata.owner_references) for one in found.items]

    async def owned() -> bool:
        return await claims() == [True, True]

    await bed.until(owned, "the claims would go with the cluster", within=20)
    assert OPERATOR.removal is not None
    said: list[str] = []
    removed = await remove_clusters(
        bed.client,
        operators={"mysql": OPERATOR.removal},
        scope="all",
        namespaces=(namespace,),
        within=60,
        say=said.append,
    )
    assert removed == 1
    assert said == [
        "tutorial/first (example.com): waiting for the operator to release its claims",
        "tutorial/first (example.com): its pods end",
    ]
    assert await claims() == [False, False]
