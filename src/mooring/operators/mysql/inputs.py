"""The declaration of a cluster with all it refers to, and what Kubernetes says around it; reads only.

A running operator takes the objects from its caches, ``mooring why`` from the API server: see `references`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property

from mooring.actor import Dependency, Terminal, Wait
from mooring.kube.object import Key, metadata_of
from mooring.kube.objects import apps, core
from mooring.kube.quantity import parse_quantity
from mooring.operators.mysql.accounts import WITHHELD, WantedDatabase, WantedUser
from mooring.operators.mysql.config import live_defaults, parse_live
from mooring.operators.mysql.credentials import Credentials, credentials_in
from mooring.operators.mysql.flavors import flavor_of
from mooring.operators.mysql.names import (
    COMPONENT,
    INPUTS,
    ORDER,
    PAUSE,
    READS,
    REPLICA,
    ROLE,
    SWITCH_TO,
    Names,
)
from mooring.operators.mysql.nodes import cordoned
from mooring.operators.mysql.snapshot import Observed, Scaling, Trial, Wanted
from mooring.operators.mysql.specs import DATA, Found, Specs
from mooring.operators.mysql.tuning import kept_values
from mooring.operators.mysql.types import (
    DEFAULT_IMAGE,
    DurabilitySpec,
    FailoverSpec,
    Maintenance,
    MySQLCluster,
    MySQLClusterSpec,
    MySQLClusterStatus,
    Storage,
    size_of,
)
from mooring.operators.mysql.validate import validate
from mooring.operators.workload.autogrow import Filling
from mooring.operators.workload.autoscale import policy_of
from mooring.operators.workload.certificates import CertificateError, ends, given, issued, trust
from mooring.operators.workload.claims import claim_name, is_older
from mooring.operators.workload.credentials import secret_value
from mooring.operators.workload.last_words import BAD_CONFIGURATION, OUT_OF_MEMORY
from mooring.operators.workload.moves import Orders
from mooring.operators.workload.pods import Pod, pods_of
from mooring.operators.workload.statefulset import replicas_of, state_of
from mooring.operators.workload.surroundings import Reference, Surroundings
from mooring.operators.workload.trouble import SIDECAR
from mooring.operators.workload.volumes import Growth, awaiting_volumes, volume_of
from mooring.runtime import secrets

__all__ = ["DEPENDENCIES", "REMEDIES", "Inputs", "read_inputs", "references", "secret_names"]

_IMAGE = "correct spec.image, or give spec.imagePullSecrets"
REMEDIES = {
    "ImagePullBackOff": _IMAGE,
    "ErrImagePull": _IMAGE,
    "InvalidImageName": "correct spec.image",
    "ErrImageNeverPull": "correct spec.image or spec.imagePullPolicy",
    "CrashLoopBackOff": "check spec.image, spec.config and spec.resources",
    BAD_CONFIGURATION: "correct spec.config",
    OUT_OF_MEMORY: "raise the memory in spec.resources.limits",
    "Unschedulable": "check spec.resources and spec.pod (affinity, nodeSelector) against the nodes there are",
    "UnboundClaim": "provide a volume or the storage class, or correct spec.storage",
    "exporter": "correct spec.exporter.image",
    SIDECAR: "correct its image in spec.podTemplate",
}


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """What a pass found outside the databases."""

    cluster: MySQLCluster = field(repr=False)
    around: Surroundings = field(repr=False)
    wanted: Wanted
    found: Found
    observed: Observed
    """``primary_unreachable`` is the actor's to fill in."""
    blocked: Wait | Terminal | None = None
    """What keeps the declaration from being met; the cluster runs on as it is."""
    refused: Mapping[str, str] = field(default_factory=dict)
    """Why claims cannot have the declared size, by name."""
    filling: Filling = field(default_factory=Filling)
    """What was decided about claims that grow by themselves."""

    @property
    def growth(self) -> Growth:
        """The sizes of the claims."""
        return self.specs.growth(self.around.claims, self.refused)

    @property
    def status(self) -> MySQLClusterStatus:
        """The status of earlier passes."""
        return self.cluster.status or MySQLClusterStatus()

    @property
    def credentials(self) -> Credentials:
        """The operator's accounts and root, with the passwords of a change under way."""
        return self.found.credentials

    def measured(self, refused: Mapping[str, str], filling: Filling) -> Inputs:
        """The same with why claims do not grow, and what was found and decided about how full they are."""
        names = {claim_name(DATA, pod.name): pod.name for pod in self.pods}
        shares = {names[claim]: share for claim, share in filling.shares.items() if claim in names}
        observed = replace(self.observed, shares=shares)
        return replace(self, refused=refused, filling=filling, observed=observed)

    @cached_property
    def specs(self) -> Specs:
        """The child objects as they are to be."""
        return Specs(self.cluster, self.found)

    def ordered(
        self,
        orders: Orders | None = None,
        *,
        live: Mapping[str, str] | None = None,
        credentials: Credentials | None = None,
    ) -> Specs:
        """The child objects with what a move changes about them."""
        return Specs(self.cluster, self.found, orders, live=live, credentials=credentials)

    @cached_property
    def pods(self) -> list[Pod]:
        """The set's pods, by ordinal."""
        owner = self.found.set
        pods = pods_of(
            self.around.pods,
            component=COMPONENT,
            owner_uid=(owner.metadata.uid if owner is not None else None) or "",
            claims=self.around.claims,
            born=_time(self.cluster.metadata.creation_timestamp),
            remedies=REMEDIES,
            roles=True,
        )
        return awaiting_volumes(pods, self.growth.volumes)

    @cached_property
    def orders(self) -> dict[str, str]:
        """The order that each pod's annotation holds, by pod."""
        return {
            one.metadata.name or "": (one.metadata.annotations or {}).get(ORDER, "")
            for one in self.around.pods
        }


# --- what is read ----------------------------------------------------------------------------------------


def _given_secrets(cluster: MySQLCluster) -> list[Key]:
    """Secrets of the user's: root's password, the certificate, those of the declared users."""
    spec = cluster.spec or MySQLClusterSpec()
    names = [spec.credentials_secret, spec.tls.secret_name if spec.tls else None]
    names += [one.password_secret.name for one in spec.users or () if one.password_secret is not None]
    return [Key(cluster.metadata.namespace or "", name) for name in dict.fromkeys(names) if name]


def _secrets(cluster: MySQLCluster) -> list[Key]:
    """All Secrets of a cluster: its own have no owner where they outlive it, so that no watch maps them."""
    return [Key(cluster.metadata.namespace or "", name) for name in secret_names(cluster)]


DEPENDENCIES = (Dependency(metadata_of(core.Secret), _secrets),)
"""Objects whose changes bring a cluster back."""


def secret_names(cluster: MySQLCluster) -> list[str]:
    """The Secrets that are read: the cluster's own, and the user's."""
    names = Names(cluster.metadata.name or "")
    return [
        names.credentials,
        names.credentials_copy,
        names.tls,
        *(key.name for key in _given_secrets(cluster)),
    ]


def references(cluster: MySQLCluster) -> list[Reference]:
    """The objects that are read beside pods and claims."""
    names = Names(cluster.metadata.name or "")
    return [
        (apps.StatefulSet, names.set),
        (core.ConfigMap, names.config),
        *((core.Secret, name) for name in secret_names(cluster)),
    ]


def read_inputs(
    cluster: MySQLCluster,
    around: Surroundings,
    *,
    now: datetime | None = None,
    hindrance: Wait | None = None,
) -> Inputs | Wait | Terminal:
    """Resolve the declaration; ``now`` is what certificates are renewed by, by default the present moment.

    ``hindrance`` is what is in the way of the child objects.

    A faulty one leaves a running cluster as it runs (`Inputs.blocked`); where nothing runs yet it is the answer.
    """
    spec, status = cluster.spec or MySQLClusterSpec(), cluster.status or MySQLClusterStatus()
    names = Names(cluster.metadata.name or "")
    there = around.find(apps.StatefulSet, names.set)
    problems = "; ".join(str(problem) for problem in validate(cluster))
    root, no_root = _root_password(spec, around)
    certificates, no_pair = _certificates(cluster, around, now or datetime.now(UTC))
    blocked: Wait | Terminal | None = Terminal("InvalidSpec", problems) if problems else no_root or no_pair
    blocked = blocked or _unlike(spec, there, around) or hindrance
    if blocked is not None and there is None:
        return blocked
    kept = (around.find(core.Secret, name) for name in (names.credentials, names.credentials_copy))
    own = credentials_in(*kept, root=root).completed(founded=bool(status.primary))
    credentials = replace(
        own,
        texts={**own.texts, **_user_passwords(spec, around)},
        tls=trust(certificates) if certificates is not None else None,
        plain=_plain(around.pods),
    )
    for text in credentials.texts.values():
        secrets.add(text)
    live = around.find(core.ConfigMap, names.config)
    image = spec.image or DEFAULT_IMAGE
    flavor = flavor_of(status.flavor or image, status.flavor or spec.flavor) or "mariadb"
    found = Found(
        set=there,
        live=parse_live((live.data or {}).get("live.cnf") or "") if live is not None else None,
        credentials=credentials,
        read_at_start=frozenset(key for key, result in (status.config or {}).items() if result.restart),
        refused=frozenset(
            key for key, result in (status.config or {}).items() if result.state in ("Unknown", "Rejected")
        ),
        memory=_memory(spec, around.pods),
        flavor=flavor,
        certificates=certificates,
        named=certificates is not None and spec.tls is not None and not spec.tls.secret_name,
        unread=any(_unread(one.metadata.labels or {}) for one in around.pods),
    )
    wanted = wanted_of(cluster, found)
    if isinstance(blocked, Terminal) or hindrance is not None:
        wanted = replace(wanted, size=replicas_of(there) or wanted.size, scaling=None, sound=False)
    specs = Specs(cluster, found)
    return Inputs(
        cluster=cluster,
        around=around,
        wanted=wanted,
        found=found,
        observed=_observed(cluster, around, specs, found, may_roll=blocked is None),
        blocked=blocked,
    )


def wanted_of(cluster: MySQLCluster, found: Found) -> Wanted:
    """The declaration as the planner reads it."""
    spec = cluster.spec or MySQLClusterSpec()
    annotations = cluster.metadata.annotations or {}
    durability, failover = spec.durability or DurabilitySpec(), spec.failover or FailoverSpec()
    maintenance = spec.maintenance or Maintenance()
    names, given = Names(cluster.metadata.name or ""), spec.config or {}
    defaults = live_defaults(found.flavor, found.memory, tuned=spec.tuning != "Off")
    kept = kept_values(cluster.status.tuning if cluster.status is not None else None, defaults)
    ours = {**defaults, **kept}
    taken = {key.strip().lower().replace("-", "_") for key in given}
    return Wanted(
        size=size_of(cluster),
        scaling=_scaling(spec),
        flavor=found.flavor,
        image=spec.image or DEFAULT_IMAGE,
        domain=names.host("", cluster.metadata.namespace or ""),
        mode=durability.mode or "Strict",
        max_lag=float(durability.max_lag_seconds or 30),
        detect=float(failover.detect_seconds or 4),
        reclone=failover.on_divergence != "Hold",
        config={**{key: value for key, value in ours.items() if key not in taken}, **given},
        user_keys=frozenset(given),
        tuning=spec.tuning or "Static",
        tuning_window=float(spec.tuning_window_seconds or 300),
        memory=found.memory,
        users=_users(spec, found),
        databases=tuple(
            WantedDatabase(
                name=one.name, character_set=one.character_set or "", collation=one.collation or ""
            )
            for one in spec.databases or ()
        ),
        certificate=ends(found.certificates) if found.certificates is not None else "",
        rolls_config=spec.config_policy != "report",
        paused=bool(maintenance.paused) or annotations.get(PAUSE, "").lower() == "true",
        read_only=bool(maintenance.read_only),
        fenced=frozenset(maintenance.fenced or ()),
        switch_to=annotations.get(SWITCH_TO, ""),
        on_delete=spec.update_strategy == "OnDelete",
    )


def _scaling(spec: MySQLClusterSpec) -> Scaling | None:
    """What the load decides by, where it does."""
    declared = spec.autoscale
    if declared is None:
        return None
    policy = replace(policy_of(declared), aside=1)  # a further server takes no load off the primary
    return Scaling(policy=policy, targets={one.type: one.target for one in declared.metrics})


def _observed(
    cluster: MySQLCluster, around: Surroundings, specs: Specs, found: Found, *, may_roll: bool
) -> Observed:
    size, born = specs.size, _time(cluster.metadata.creation_timestamp)
    there = found.set
    replicas = replicas_of(there)
    asked = specs.inputs if may_roll else specs.made_from
    old = set()
    for ordinal in range(max(size, replicas)):
        pod = specs.names.pod(ordinal)
        claim = around.claims.get(claim_name(DATA, pod))
        if claim is not None and is_older(claim, born):
            old.add(pod)
    state = state_of(there, replicas=replicas, asked=asked, annotation=INPUTS)
    known = ((cluster.status or MySQLClusterStatus()).rolls or {}).get(COMPONENT)
    begun = state.current or (known is not None and known.inputs == asked)
    return Observed(
        trial=None if there is None or begun or _image(there) == specs.image else Trial(),
        set=replace(state, image=_image(there)),
        old_claims=frozenset(old),
        published=found.live or {},
        cordoned=cordoned(around.pods, around.of(core.Node)),
        storage=specs.storage_size,
        changed_passwords=found.credentials.changed,
    )


def _unlike(spec: MySQLClusterSpec, there: apps.StatefulSet | None, around: Surroundings) -> Wait | None:
    """What spec.storage asks for and the volumes that hold the data cannot become."""
    if there is None or there.spec is None:
        return None
    storage, claimed = spec.storage or Storage(), bool(there.spec.volume_claim_templates)
    if claimed is (storage.empty_dir is not None):
        kind = "claims" if claimed else "emptyDirs"
        text = f"spec.storage: the pods keep their data on {kind}; put it back, or move the data to another cluster"
        return Wait("StorageChanged", text, after=30.0, stalled=True)
    where, most = "spec.storage.size", storage.size
    if storage.autogrow is not None:
        where, most = "spec.storage.autogrow.maxSize", storage.autogrow.max_size
    for name, claim in sorted(around.claims.items()) if claimed else ():
        one = volume_of(claim, most) if most else None
        if one is not None and one.requested and one.too_large:
            (text,) = Growth(where=where, volumes=(one,)).unmet()
            return Wait("StorageChanged", text, after=30.0, stalled=True)
        given = claim.spec.storage_class_name if claim.spec else None
        if storage.storage_class and given and given != storage.storage_class:
            text = f"spec.storage.storageClass: the claim {name} is of the class {given}; put it back"
            return Wait("StorageChanged", text, after=30.0, stalled=True)
    return None


def _root_password(spec: MySQLClusterSpec, around: Surroundings) -> tuple[str | None, Wait | None]:
    """The text of the user's own Secret, where one is named."""
    name = spec.credentials_secret
    if not name:
        return None, None
    text = secret_value(around.find(core.Secret, name), "root-password").rstrip("\n")
    if text:
        return text, None
    why = f"spec.credentialsSecret: Secret {name} with a key root-password does not exist; create it"
    return None, Wait("CredentialsMissing", why, after=30.0, stalled=True)


def _user_passwords(spec: MySQLClusterSpec, around: Surroundings) -> dict[str, str]:
    """The passwords of declared accounts by label: ``user-N`` for the one at that place."""
    texts = {}
    for at, user in enumerate(spec.users or ()):
        reference = user.password_secret
        if reference is not None and reference.name:
            text = secret_value(around.find(core.Secret, reference.name), reference.key or "password")
            texts[f"user-{at}"] = text.rstrip("\r\n")
    return {label: text for label, text in texts.items() if text}


def _users(spec: MySQLClusterSpec, found: Found) -> tuple[WantedUser, ...]:
    made = []
    for at, user in enumerate(spec.users or ()):
        label, reference = f"user-{at}", user.password_secret
        missing = ""
        if reference is not None and not found.credentials.text(label):
            missing = (
                f"Secret {reference.name} with a key {reference.key or 'password'} does not exist; create it"
            )
        made.append(
            WantedUser(
                name=user.name,
                host=user.host or "%",
                label=label,
                grants=tuple(user.grants) if user.grants is not None else None,
                tls=bool(user.require_tls),
                withheld=WITHHELD.get(found.flavor, frozenset()),
                missing=missing,
            )
        )
    return tuple(made)


def _certificates(
    cluster: MySQLCluster, around: Surroundings, now: datetime
) -> tuple[dict[str, str] | None, Wait | None]:
    """Data of the cluster's Secret with the certificate; as it is where the user's cannot be used."""
    spec, names = cluster.spec or MySQLClusterSpec(), Names(cluster.metadata.name or "")
    if spec.tls is None:
        return None, None
    there = around.find(core.Secret, names.tls)
    if not spec.tls.secret_name:
        return issued(there, names=names.hosts(cluster.metadata.namespace or ""), now=now), None
    mine = around.find(core.Secret, spec.tls.secret_name)
    why = "does not exist; create it with tls.crt, tls.key and ca.crt"
    if mine is not None:
        try:
            return given(mine, there, now=now), None
        except CertificateError as error:
            why = f"{error}; correct it"
    text = f"spec.tls.secretName: Secret {spec.tls.secret_name}: {why}"
    return dict((there.data if there is not None else None) or {}), Wait(
        "CertificateUnusable", text, after=30.0, stalled=True
    )


def _unread(labels: Mapping[str, str]) -> bool:
    return labels.get(ROLE) == REPLICA and READS not in labels


def _plain(pods: Sequence[core.Pod]) -> frozenset[str]:
    """Addresses of pods that mount no certificate."""
    return frozenset(
        (pod.status.pod_ip if pod.status else None) or ""
        for pod in pods
        if not any(one.name == "tls" for one in (pod.spec.volumes if pod.spec else None) or ())
    )


def _memory(spec: MySQLClusterSpec, pods: Sequence[core.Pod]) -> int:
    """Bytes that every server may use: what is declared, or less where a pod still runs with less."""
    declared = (spec.resources.limits if spec.resources else None) or {}
    if "memory" not in declared:
        return 0
    limits = [declared["memory"]]
    for pod in pods:
        for one in (pod.spec.containers if pod.spec else None) or ():
            given = ((one.resources.limits if one.resources else None) or {}).get("memory")
            if one.name == COMPONENT and given:
                limits.append(given)
    return min(int(parse_quantity(text)) for text in limits)


def _image(one: apps.StatefulSet | None) -> str:
    template = one.spec.template if one is not None and one.spec is not None else None
    containers = (template.spec.containers if template and template.spec else None) or ()
    return next((container.image or "" for container in containers if container.name == COMPONENT), "")


def _time(text: str | None) -> datetime | None:
    return datetime.fromisoformat(text) if text else None
