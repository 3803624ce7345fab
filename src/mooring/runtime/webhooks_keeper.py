"""What the leading replica does for webhooks: certificates in a Secret, and the API server told of them.

`WebhookKeeper.run` is a service of the leader (`Manager.serve`). It makes the Secret (with a create, so that
of two replicas one wins and the other reads), renews it (at the version it read), and registers the webhooks:
it applies its own configurations whole, or, with ``inject_only``, where a chart brings them, applies nothing
but the ``caBundle`` of its own entries. It looks again when one of these objects changes, and every minute
for what only time changes; at rest it writes nothing.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

import structlog

from mooring.cache.clock import Clock, SystemClock
from mooring.cache.informer import Informer
from mooring.cache.store import Transition
from mooring.kube.client import Client
from mooring.kube.errors import AlreadyExists, Conflict, Forbidden, KubeError, NotFound
from mooring.kube.object import Key, Object
from mooring.kube.objects.admissionregistration import (
    MutatingWebhook,
    MutatingWebhookConfiguration,
    RuleWithOperations,
    ServiceReference,
    ValidatingWebhook,
    ValidatingWebhookConfiguration,
    WebhookClientConfig,
)
from mooring.kube.objects.core import Secret
from mooring.kube.objects.meta import ObjectMeta
from mooring.kube.patches import MergePatch
from mooring.runtime.lease import FenceLost
from mooring.runtime.webhooks import Webhook
from mooring.runtime.webhooks_certificates import CertificateError, Certificates, Lifetimes, renewed

__all__ = ["Registration", "WebhookKeeper"]

log = structlog.get_logger("mooring.webhooks")

#: Seconds between two looks at the time, and after a failure.
PERIOD: Final = 60.0
RETRY: Final = 5.0
#: Steps of one look; a rotation needs one each time.
_STEPS: Final = 5
MANAGER: Final = "mooring-webhooks"
LABELS: Final = {"app.kubernetes.io/managed-by": "mooring"}

Configuration = ValidatingWebhookConfiguration | MutatingWebhookConfiguration


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """How the API server finds the webhooks.

    ``name`` is that of the configuration objects. ``service`` (namespace and name, port ``port``) is for an
    operator in the cluster, ``url`` (``https://HOST:PORT``) for one outside; exactly one is given.
    """

    name: str
    service: Key | None = None
    port: int = 443
    url: str = ""
    inject_only: bool = False

    def __post_init__(self) -> None:
        if (self.service is None) == (not self.url):
            raise ValueError("webhooks: give either a service or a URL")
        if self.url and (urlsplit(self.url).scheme != "https" or not urlsplit(self.url).hostname):
            raise ValueError(f"webhooks: {self.url!r} is not a URL; write https://HOST:PORT")

    @property
    def names(self) -> list[str]:
        """The names and addresses that the API server expects in the serving certificate."""
        if self.service is not None:
            host = f"{self.service.name}.{self.service.namespace}"
            return [f"{host}.svc", f"{host}.svc.cluster.local"]
        return [urlsplit(self.url).hostname or ""]

    def configurations(self, hooks: Sequence[Webhook[Any]], bundle: bytes) -> list[Configuration]:
        """The objects to apply; one for each sort of webhook there is."""
        meta = ObjectMeta(name=self.name, labels=dict(LABELS))
        validating = [ValidatingWebhook(**self._entry(h, bundle)) for h in hooks if not h.mutating]
        mutating = [MutatingWebhook(**self._entry(h, bundle)) for h in hooks if h.mutating]
        made: list[Configuration] = []
        if validating:
            made.append(ValidatingWebhookConfiguration(metadata=meta, webhooks=validating))
        if mutating:
            made.append(MutatingWebhookConfiguration(metadata=meta, webhooks=mutating))
        return made

    def _entry(self, hook: Webhook[Any], bundle: bytes) -> dict[str, Any]:
        resource = hook.kind.resource
        rule = RuleWithOperations(
            api_groups=[resource.group],
            api_versions=[resource.version],
            operations=list(hook.operations),
            resources=[resource.plural],
            scope="Namespaced" if resource.namespaced else "Cluster",
        )
        return {
            "name": hook.name,
            "rules": [rule],
            "client_config": self._client_config(hook, bundle),
            "admission_review_versions": ["v1"],
            "side_effects": "None",
            "failure_policy": hook.failure_policy,
            "match_policy": "Equivalent",
            "timeout_seconds": hook.timeout,
        }

    def _client_config(self, hook: Webhook[Any], bundle: bytes) -> WebhookClientConfig:
        encoded = base64.b64encode(bundle).decode()
        if self.service is None:
            return WebhookClientConfig(ca_bundle=encoded, url=self.url.rstrip("/") + hook.path)
        reference = ServiceReference(
            namespace=self.service.namespace, name=self.service.name, path=hook.path, port=self.port
        )
        return WebhookClientConfig(ca_bundle=encoded, service=reference)


class WebhookKeeper:
    """Keeps certificates and registration as they should be, while this process leads.

    ``client`` is the fenced one: a process that lost its Lease must not rotate. ``period`` is in seconds.
    """

    def __init__(
        self,
        client: Client,
        hooks: Sequence[Webhook[Any]],
        *,
        secret: Key,
        registration: Registration,
        clock: Clock | None = None,
        lifetimes: Lifetimes | None = None,
        period: float = PERIOD,
    ) -> None:
        self._client = client.as_manager(MANAGER)
        self._hooks = tuple(hooks)
        self._secret = secret
        self._registration = registration
        self._clock = clock or SystemClock()
        self._lifetimes = lifetimes or Lifetimes()
        self._period = period
        self._wake = asyncio.Event()
        #: Version of each configuration after our own apply, and the bundle in it.
        self._applied: dict[type[Object], tuple[str | None, bytes]] = {}
        self._said = ""

    async def run(self) -> None:
        """Keep until cancelled; what the API server refuses is said in the log and tried again."""
        async with AsyncExitStack() as stack:
            await self._watch(stack)
            while True:
                self._wake.clear()
                pause = self._period
                try:
                    await self.look()
                    self._said = ""
                except (KubeError, FenceLost) as error:
                    pause = RETRY
                    self._say(error)
                await self._rest(pause)

    async def look(self) -> None:
        """Do what is to be done now."""
        for _ in range(_STEPS):
            if not await self._step():
                return

    async def _watch(self, stack: AsyncExitStack) -> None:
        """Look again when the Secret or a configuration changes."""
        name = self._registration.name
        kinds = {type(one) for one in self._registration.configurations(self._hooks, b"")}
        for kind, namespace, selected in (
            (Secret, self._secret.namespace, self._secret.name),
            *((kind, "", name) for kind in kinds),
        ):
            informer: Informer[Any] = Informer(
                self._client,
                kind,
                clock=self._clock,
                namespace=namespace,
                field_selector=f"metadata.name={selected}",
            )
            informer.add_handler(self._changed)
            informer.start()
            stack.push_async_callback(informer.stop)

    def _changed(self, change: Transition[Any]) -> None:
        self._wake.set()

    async def _rest(self, seconds: float) -> None:
        try:
            async with self._clock.deadline(seconds):
                await self._wake.wait()
        except TimeoutError:
            return

    def _say(self, error: Exception) -> None:
        """Once for each reason: operators work without webhooks, and a log full of this helps nobody."""
        text = str(error)
        if text != self._said:
            remedy = (
                "; allow it in the ClusterRole, or run without webhooks"
                if isinstance(error, Forbidden)
                else ""
            )
            log.warning("cannot keep the webhooks in order", error=text + remedy)
            self._said = text

    async def _step(self) -> bool:
        """One write to the Secret, with the configurations brought up to it first; whether there was one."""
        secret, found = await self._read()
        trusted = found is not None and await self._register(found.bundle)
        wanted = renewed(
            found,
            names=self._registration.names,
            now=self._clock.now(),
            lifetimes=self._lifetimes,
            trusted=trusted,
        )
        if wanted is found:
            return False
        try:
            await self._write(secret, wanted)
            log.info("wrote certificates", into=str(self._secret), authorities=len(wanted.authorities))
        except (AlreadyExists, Conflict):
            log.info("another replica was faster", into=str(self._secret))
        return True

    async def _read(self) -> tuple[Secret | None, Certificates | None]:
        try:
            secret = await self._client.get(Secret, self._secret.name, namespace=self._secret.namespace)
        except NotFound:
            return None, None
        try:
            return secret, Certificates.from_secret(secret.data)
        except CertificateError as error:
            log.warning(
                "the certificates are unusable and made anew", into=str(self._secret), error=str(error)
            )
            return secret, None

    async def _write(self, secret: Secret | None, wanted: Certificates) -> None:
        """Create, or change at exactly the version that was read: of two replicas one wins."""
        key, data = self._secret, wanted.to_secret()
        if secret is None:
            meta = ObjectMeta(name=key.name, namespace=key.namespace, labels=dict(LABELS))
            await self._client.create(Secret(metadata=meta, type="kubernetes.io/tls", data=data))
            return
        meta_patch = {"uid": secret.metadata.uid, "resourceVersion": secret.metadata.resource_version}
        patch = MergePatch({"metadata": meta_patch, "data": data})
        await self._client.patch(Secret, key.name, patch, namespace=key.namespace)

    async def _register(self, bundle: bytes) -> bool:
        """Bring the configurations up to a bundle; whether all of them carry it now."""
        done = True
        for wanted in self._registration.configurations(self._hooks, bundle):
            if self._registration.inject_only:
                done = await self._inject(wanted) and done
            else:
                await self._apply(wanted, bundle)
        return done

    async def _apply(self, wanted: Configuration, bundle: bytes) -> None:
        kind, name = type(wanted), self._registration.name
        try:
            live = await self._client.get(kind, name)
            if self._applied.get(kind) == (live.metadata.resource_version, bundle):
                return
        except NotFound:
            pass
        made = await self._client.apply(wanted)
        self._applied[kind] = (made.metadata.resource_version, bundle)

    async def _inject(self, wanted: Configuration) -> bool:
        """Set the ``caBundle`` of our own entries, and own nothing else of the object."""
        kind, name = type(wanted), self._registration.name
        try:
            live = await self._client.get(kind, name)
        except NotFound:
            log.warning(
                "the webhook configuration does not exist; install the chart's", kind=kind.__name__, name=name
            )
            return False
        bundles = {
            entry.name: entry.client_config.ca_bundle if entry.client_config else None
            for entry in live.webhooks or ()
        }
        ours = [entry for entry in wanted.webhooks or () if entry.name in bundles]
        if all(
            entry.client_config and bundles[entry.name] == entry.client_config.ca_bundle for entry in ours
        ):
            return bool(ours)
        await self._client.apply(_only_bundles(wanted, [entry.name or "" for entry in ours]))
        return True


def _only_bundles(wanted: Configuration, names: Sequence[str]) -> Configuration:
    """The apply that sets nothing but the bundles of the entries with these names."""
    meta = ObjectMeta(name=wanted.metadata.name)
    if isinstance(wanted, MutatingWebhookConfiguration):
        entries = [
            MutatingWebhook(name=entry.name, client_config=_only_bundle(entry.client_config))
            for entry in wanted.webhooks or ()
            if entry.name in names
        ]
        return MutatingWebhookConfiguration(metadata=meta, webhooks=entries)
    return ValidatingWebhookConfiguration(
        metadata=meta,
        webhooks=[
            ValidatingWebhook(name=entry.name, client_config=_only_bundle(entry.client_config))
            for entry in wanted.webhooks or ()
            if entry.name in names
        ],
    )


def _only_bundle(config: WebhookClientConfig | None) -> WebhookClientConfig:
    return WebhookClientConfig(ca_bundle=config.ca_bundle if config else None)
