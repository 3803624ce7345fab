"""The environment of a container, put together in the kubelet's order."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from mooring.kube.objects.core import Container, EnvVar, Service
from mooring.local.node.fields import FieldError, PodFacts, expand
from mooring.local.node.sandbox import PATH
from mooring.local.node.sources import Missing, Sources, config_data, secret_data

__all__ = ["environment", "service_links"]

_FQDN_LIMIT = 64
_Data = Callable[[Sources, str, str], dict[str, bytes]]


def environment(
    facts: PodFacts, container: Container, *, image: Mapping[str, str], sources: Sources, domain: str = ""
) -> dict[str, str]:
    """All variables; raises :class:`Missing` or FieldError when one cannot be given.

    Later sources win: image, Services, ``envFrom``, ``env``.
    """
    namespace = facts.pod.metadata.namespace or ""
    spec = facts.pod.spec
    env = {"PATH": PATH, "HOME": "/root", "HOSTNAME": hostname(facts, domain=domain), **image}
    links = spec is None or spec.enable_service_links is not False
    # How a pod finds the API server is always there.
    env |= service_links([one for one in sources.services("default") if one.metadata.name == "kubernetes"])
    env |= service_links(sources.services(namespace) if links else [])
    env |= _from_whole_objects(container, namespace, sources)
    for variable in container.env or ():
        value = _value(variable, facts, container, namespace=namespace, sources=sources, env=env)
        if variable.name and value is not None:
            env[variable.name] = value
    return {name: value for name, value in env.items() if "\0" not in value}


def hostname(facts: PodFacts, *, domain: str = "") -> str:
    """The pod's host name: ``spec.hostname`` or its name, at most 63 characters.

    With ``setHostnameAsFQDN`` and a domain it is the whole name; raises FieldError when that is too long for
    the kernel.
    """
    spec, meta = facts.pod.spec, facts.pod.metadata
    short = ((spec.hostname if spec else None) or meta.name or "pod")[:63].rstrip("-.")
    if spec is None or not spec.set_hostname_as_fqdn or not spec.subdomain or not domain:
        return short
    full = f"{short}.{spec.subdomain}.{meta.namespace}.svc.{domain}"
    if len(full) > _FQDN_LIMIT:
        raise FieldError(
            f"failed to construct FQDN from pod hostname and cluster domain, FQDN {full} is too long "
            f"({_FQDN_LIMIT} characters is the max, {len(full)} characters requested)"
        )
    return full


def service_links(services: list[Service]) -> dict[str, str]:
    """Variables by which a pod finds the Services of its namespace (``REDIS_SERVICE_HOST`` ...)."""
    env: dict[str, str] = {}
    for service in services:
        spec = service.spec
        if spec is None or not spec.cluster_ip or spec.cluster_ip == "None" or not spec.ports:
            continue
        name = re.sub(r"[^A-Z0-9]", "_", (service.metadata.name or "").upper())
        address, first = spec.cluster_ip, spec.ports[0]
        env |= {f"{name}_SERVICE_HOST": address, f"{name}_SERVICE_PORT": str(first.port)}
        env[f"{name}_PORT"] = f"{(first.protocol or 'TCP').lower()}://{address}:{first.port}"
        for port in spec.ports:
            if port.name:
                env[f"{name}_SERVICE_PORT_{port.name.upper().replace('-', '_')}"] = str(port.port)
            protocol = port.protocol or "TCP"
            head = f"{name}_PORT_{port.port}_{protocol}"
            env[head] = f"{protocol.lower()}://{address}:{port.port}"
            env |= {
                f"{head}_PROTO": protocol.lower(),
                f"{head}_PORT": str(port.port),
                f"{head}_ADDR": address,
            }
    return env


def _from_whole_objects(container: Container, namespace: str, sources: Sources) -> dict[str, str]:
    env: dict[str, str] = {}
    for source in container.env_from or ():
        config, secret = source.config_map_ref, source.secret_ref
        if config is not None:
            data = _entries(config_data, sources, namespace, config.name, optional=config.optional)
        elif secret is not None:
            data = _entries(secret_data, sources, namespace, secret.name, optional=secret.optional)
        else:
            continue
        env |= {f"{source.prefix or ''}{key}": value.decode(errors="replace") for key, value in data.items()}
    return env


def _entries(
    read: _Data, sources: Sources, namespace: str, name: str | None, *, optional: bool | None
) -> dict[str, bytes]:
    try:
        return read(sources, namespace, name or "")
    except Missing:
        if optional:
            return {}
        raise


def _value(
    variable: EnvVar,
    facts: PodFacts,
    container: Container,
    *,
    namespace: str,
    sources: Sources,
    env: Mapping[str, str],
) -> str | None:
    source = variable.value_from
    if source is None:
        return expand(variable.value or "", env)
    if source.field_ref is not None:
        return facts.field(source.field_ref)
    if source.resource_field_ref is not None:
        return facts.resource(source.resource_field_ref, container)
    if (config := source.config_map_key_ref) is not None:
        return _key(config_data, sources, namespace, config.name, config.key, optional=config.optional)
    if (secret := source.secret_key_ref) is not None:
        return _key(secret_data, sources, namespace, secret.name, secret.key, optional=secret.optional)
    raise Missing(f"env {variable.name}: this kind of valueFrom is not supported")


def _key(
    read: _Data,
    sources: Sources,
    namespace: str,
    name: str | None,
    key: str | None,
    *,
    optional: bool | None,
) -> str | None:
    data = _entries(read, sources, namespace, name, optional=optional)
    if key in data:
        return data[key or ""].decode(errors="replace")
    if optional:
        return None
    what = "ConfigMap" if read is config_data else "Secret"
    raise Missing(f"couldn't find key {key} in {what} {namespace}/{name}")
