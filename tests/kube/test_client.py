"""What a client sends, whatever the server makes of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from mooring.kube import Client, MergePatch, Response
from mooring.kube.objects.core import ConfigMap
from mooring.kube.objects.meta import ObjectMeta


class Recording:
    """Answers everything with one ConfigMap and keeps what was asked."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, str, Mapping[str, str]]] = []

    async def request(
        self, method: str, path: str, *, query: Mapping[str, str] | None = None, **options: Any
    ) -> Response:
        self.sent.append((method, path, dict(query or {})))
        return Response(200, {}, b'{"metadata": {"name": "a", "namespace": "default"}}')

    def stream(self, method: str, path: str, **options: Any) -> Any:
        raise NotImplementedError

    async def close(self) -> None:
        return


@pytest.mark.parametrize("subresource", ["", "status"])
async def test_every_write_names_its_manager_and_has_unknown_fields_refused(subresource: str) -> None:
    transport = Recording()
    client = Client(transport, field_manager="keeper")
    obj = ConfigMap(metadata=ObjectMeta(name="a", namespace="default"))
    if not subresource:
        await client.create(obj)
    await client.apply(obj, subresource=subresource)
    await client.patch(ConfigMap, "a", MergePatch({}), namespace="default", subresource=subresource)
    await client.as_manager("other").patch(
        ConfigMap, "a", MergePatch({}), namespace="default", subresource=subresource
    )
    managers = [query["fieldManager"] for _, _, query in transport.sent]
    assert managers == [*(["keeper"] * (len(managers) - 1)), "other"]
    assert {query["fieldValidation"] for _, _, query in transport.sent} == {"Strict"}
