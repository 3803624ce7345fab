"""The objects of a WebUI."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

from msgspec.structs import replace

from mooring.actor import digest
from mooring.kube.object import Object
from mooring.kube.objects import apps, core, meta
from mooring.operators.matrixone import toml
from mooring.operators.matrixone.names import INPUTS, SQL, UI_BACKEND, UI_WEB, UINames, labels_of
from mooring.operators.matrixone.scripts import CONFIG_PATH
from mooring.operators.matrixone.specs.pods import CONFIG, inputs_of, metadata, overlaid, spread
from mooring.operators.matrixone.types import Overlay, WebUI, WebUISpec
from mooring.operators.workload.containers import READ_ONLY, encoded

__all__ = ["Credential", "UISpecs"]

FRONTEND: Final = "matrixorigin/dashboard:frontend-0.1.0"
BACKEND: Final = "matrixorigin/dashboard:backend-0.1.0"
_NOT_PODS: Final = ("serviceType", "updateStrategy", "image")


@dataclass(frozen=True, kw_only=True)
class Credential:
    """The SQL user that the dashboard reads as; ``version`` is that of the Secret it comes from."""

    username: str
    password: str = field(repr=False)
    version: str = ""


class UISpecs:
    """The objects of one WebUI.

    ``group`` is the CNSet that the dashboard shows, by default the group ``tp`` of the cluster of its name.
    """

    def __init__(self, ui: WebUI, credential: Credential, *, group: str = "") -> None:
        self._owner = ui
        self._spec = ui.spec or WebUISpec()
        self._credential = credential
        self.names = UINames(ui)
        shown = ui.deps.cnset.metadata if ui.deps is not None and ui.deps.cnset is not None else None
        named = (shown.name if shown is not None else None) or ""
        self._host = f"{group or named or f'{self.names.owner}-tp'}-cn"

    def objects(self) -> list[Object]:
        """Everything the dashboard consists of, in the order in which it is made."""
        return [self.service(), self.secret(), self.deployment()]

    def service(self) -> core.Service:
        """Where browsers connect to."""
        port = core.ServicePort(name="web", port=UI_WEB, target_port=UI_WEB, protocol="TCP")
        return core.Service(
            metadata=metadata(self._owner, self.names.main),
            spec=core.ServiceSpec(
                type=self._spec.service_type or "ClusterIP", selector=labels_of(self._owner), ports=[port]
            ),
        )

    @cached_property
    def file(self) -> str:
        """The configuration, with the password."""
        made: dict[str, Any] = toml.parse(self._spec.config)
        for section, values in (
            (
                "db",
                {
                    "host": self._host,
                    "port": SQL,
                    "username": self._credential.username,
                    "password": self._credential.password,
                },
            ),
            ("log", {"level": "info", "format": "console"}),
            (
                "server",
                {"host": "0.0.0.0", "port": UI_BACKEND, "tokenEffectiveTime": 2, "mode": "playground"},  # noqa: S104
            ),
        ):
            for key, value in values.items():
                made = toml.put(made, value, section, key)
        return toml.render(made)

    def secret(self) -> core.Secret:
        """The configuration; its name tells nothing of the password."""
        named = digest([self.inputs(), self._host, self._credential.username, self._credential.version])[:10]
        return core.Secret(
            metadata=metadata(self._owner, f"{self.names.config}-{named}"),
            type="Opaque",
            data={"config.toml": encoded(self.file)},
            immutable=True,
        )

    def inputs(self) -> str:
        """Digest of what the user decided about the pods; only a change of it may restart any."""
        return inputs_of(self._spec, without=_NOT_PODS)

    def deployment(self) -> apps.Deployment:
        """The dashboard: a page and what answers it."""
        strategy = self._spec.update_strategy
        rolling = apps.RollingUpdateDeployment(
            max_surge=strategy.max_surge if strategy is not None else None,
            max_unavailable=strategy.max_unavailable if strategy is not None else None,
        )
        overlay = self._spec.overlay or Overlay()
        labels = {**labels_of(self._owner), **(overlay.pod_labels or {}), **labels_of(self._owner)}
        return apps.Deployment(
            metadata=metadata(self._owner, self.names.main, {INPUTS: self.inputs()}),
            spec=apps.DeploymentSpec(
                replicas=self._spec.replicas or 0,
                selector=meta.LabelSelector(match_labels=labels_of(self._owner)),
                strategy=apps.DeploymentStrategy(type="RollingUpdate", rolling_update=rolling),
                template=core.PodTemplateSpec(
                    metadata=meta.ObjectMeta(labels=labels, annotations=overlay.pod_annotations),
                    spec=self._pod(overlay),
                ),
            ),
        )

    def _pod(self, overlay: Overlay) -> core.PodSpec:
        policy = self._spec.image_pull_policy or None
        backend = core.Container(
            name=f"{self.names.owner}-backend",
            image=BACKEND,
            image_pull_policy=policy,
            command=["/mocloud-metric-service", "-c"],
            args=[f"{CONFIG_PATH}/config.toml"],
            volume_mounts=[core.VolumeMount(name=CONFIG, mount_path=CONFIG_PATH, read_only=True)],
            ports=[core.ContainerPort(name="service", container_port=UI_BACKEND, protocol="TCP")],
        )
        frontend = core.Container(
            name=f"{self.names.owner}-frontend",
            image=FRONTEND,
            image_pull_policy=policy,
            ports=[core.ContainerPort(name="web", container_port=UI_WEB, protocol="TCP")],
        )
        source = core.SecretVolumeSource(secret_name=self.secret().metadata.name, default_mode=READ_ONLY)
        pod = core.PodSpec(
            containers=[backend],
            volumes=[core.Volume(name=CONFIG, secret=source)],
            node_selector=self._spec.node_selector,
            topology_spread_constraints=spread(self._owner, self._spec),
            automount_service_account_token=False,
        )
        made = overlaid(pod, overlay)
        main, *rest = made.containers or []
        return replace(made, containers=[main, frontend, *rest])
