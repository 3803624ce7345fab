"""Whether what an instance needs is within the quotas and limits of its namespace, read as the user."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from mooring.catalog import Entry
from mooring.kube import Client, Forbidden, KubeError, NotFound
from mooring.kube.quantity import parse_quantity

__all__ = ["quota_of"]

#: A quota may name a request without its prefix.
_SAME: Final = {"cpu": "requests.cpu", "memory": "requests.memory"}
#: What a field that is bound to such a path asks for, for each container.
_ENDS: Final = {
    "/requests/cpu": "cpu",
    "/limits/cpu": "cpu",
    "/requests/memory": "memory",
    "/limits/memory": "memory",
}
_STORAGE: Final = "/requests/storage"
Json = dict[str, Any]


async def quota_of(
    client: Client, namespace: str, entry: Entry, values: Mapping[str, Any], needs: Json
) -> Json:
    """Every resource that a quota bounds, with what is used and what is wanted, and limits that a field breaks.

    ``denied`` is whether the user may not read one of them.
    """
    quotas, ranges = await asyncio.gather(
        _list(client, namespace, "resourcequotas"), _list(client, namespace, "limitranges")
    )
    rows = list(_rows(quotas or (), needs))
    broken = list(_broken(ranges or (), entry, values))
    return {"rows": rows, "limits": broken, "denied": quotas is None or ranges is None}


def _rows(quotas: Any, needs: Json) -> Iterator[Json]:
    for quota in quotas:
        status = quota.get("status") or {}
        hard = status.get("hard") or (quota.get("spec") or {}).get("hard") or {}
        used = status.get("used") or {}
        for resource, most in sorted(hard.items()):
            wanted = needs.get(_SAME.get(resource, resource), 0.0)
            limit, taken = _amount(most), _amount(used.get(resource, 0))
            yield {
                "quota": str(quota["metadata"].get("name")),
                "resource": resource,
                "hard": limit,
                "used": taken,
                "wanted": wanted,
                "over": wanted > 0 and taken + wanted > limit,
            }


def _broken(ranges: Any, entry: Entry, values: Mapping[str, Any]) -> Iterator[Json]:
    for each in ranges:
        for limit in (each.get("spec") or {}).get("limits") or ():
            for field, parameter in entry.parameters.items():
                resource = _resource(parameter.bind, str(limit.get("type")))
                value = values.get(field)
                if not resource or not isinstance(value, str) or not value:
                    continue
                try:
                    amount = _amount(value)
                except ValueError:
                    continue
                for bound, wrong in (("max", amount.__gt__), ("min", amount.__lt__)):
                    told = (limit.get(bound) or {}).get(resource)
                    if told is not None and wrong(_amount(told)):
                        yield {
                            "range": str(each["metadata"].get("name")),
                            "field": field,
                            "bound": bound,
                            "limit": str(told),
                            "value": value,
                        }


def _resource(bind: str, kind: str) -> str:
    if kind == "Container":
        return next((resource for end, resource in _ENDS.items() if bind.endswith(end)), "")
    if kind == "PersistentVolumeClaim" and (bind.endswith(_STORAGE) or bind == "/spec/storage/size"):
        return "storage"
    return ""


def _amount(value: Any) -> float:
    return float(parse_quantity(value))


async def _list(client: Client, namespace: str, plural: str) -> list[Json] | None:
    path = f"/api/v1/namespaces/{namespace}/{plural}"
    try:
        answer = msgspec.json.decode((await client.request("GET", path, query={"limit": "100"})).body)
    except Forbidden:
        return None
    except NotFound:
        return []
    except KubeError:
        return None
    found: list[Json] = answer.get("items") or []
    return found
