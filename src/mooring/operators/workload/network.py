"""A NetworkPolicy around a cluster's pods: who may connect to which ports, for every operator.

Only connections to the pods are restricted, not those that pods make.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Final

from mooring.kube.objects import meta, networking
from mooring.kube.part import Part
from mooring.runtime.crd import F

__all__ = ["NetworkAccess", "allow", "of_labels", "of_namespace", "operator_namespace", "policy"]

_NAMESPACE: Final = "kubernetes.io/metadata.name"
"""The label that every namespace has: its name."""


class NetworkAccess(Part, frozen=True, kw_only=True):
    """Which pods may connect to this cluster, where the network plugin enforces NetworkPolicies."""

    enabled: Annotated[
        bool | None, F("Only clients, the cluster's own pods, its backups and the operator may connect.")
    ] = None
    clients: Annotated[
        list[networking.NetworkPolicyPeer] | None,
        F(
            "Clients, by podSelector, namespaceSelector or ipBlock. Absent: every pod of this namespace; empty: none.",
            max_items=50,
        ),
    ] = None
    scrapers: Annotated[
        list[networking.NetworkPolicyPeer] | None,
        F("Who may read the exporter's metrics. Absent: everybody; empty: nobody.", max_items=50),
    ] = None

    def client_peers(self) -> list[networking.NetworkPolicyPeer]:
        """The clients, by default the whole namespace."""
        if self.clients is None:
            return [networking.NetworkPolicyPeer(pod_selector=meta.LabelSelector())]
        return list(self.clients)

    def scraping(self, port: int) -> list[networking.NetworkPolicyIngressRule]:
        """Who may reach the exporter's port."""
        if self.scrapers is None:
            return [networking.NetworkPolicyIngressRule(ports=_ports([port]))]
        return allow(self.scrapers, [port])


def operator_namespace() -> str:
    """Where this process runs: its connections come from there."""
    return os.environ.get("POD_NAMESPACE", "mooring-system")


def of_labels(labels: Mapping[str, str]) -> networking.NetworkPolicyPeer:
    """Pods of the same namespace with these labels."""
    return networking.NetworkPolicyPeer(pod_selector=meta.LabelSelector(match_labels=dict(labels)))


def of_namespace(name: str) -> networking.NetworkPolicyPeer:
    """Every pod of a namespace."""
    return networking.NetworkPolicyPeer(
        namespace_selector=meta.LabelSelector(match_labels={_NAMESPACE: name})
    )


def allow(
    peers: Sequence[networking.NetworkPolicyPeer], ports: Iterable[int]
) -> list[networking.NetworkPolicyIngressRule]:
    """A rule for these peers; none without peers, since a rule that names nobody lets everybody in."""
    if not peers:
        return []
    return [networking.NetworkPolicyIngressRule(from_=list(peers), ports=_ports(ports))]


def policy(
    metadata: meta.ObjectMeta,
    *,
    pods: Mapping[str, str],
    rules: Sequence[networking.NetworkPolicyIngressRule],
) -> networking.NetworkPolicy:
    """A NetworkPolicy that lets in what ``rules`` say and nothing else."""
    return networking.NetworkPolicy(
        metadata=metadata,
        spec=networking.NetworkPolicySpec(
            pod_selector=meta.LabelSelector(match_labels=dict(pods)),
            policy_types=["Ingress"],
            ingress=list(rules),
        ),
    )


def _ports(ports: Iterable[int]) -> list[networking.NetworkPolicyPort]:
    return [networking.NetworkPolicyPort(port=port, protocol="TCP") for port in ports]
