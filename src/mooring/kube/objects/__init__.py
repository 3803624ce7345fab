"""Typed Kubernetes objects, one module per API group, generated from the OpenAPI of Kubernetes 1.36.

>>> from mooring.kube.objects import apps, core
>>> core.Pod.resource.plural
'pods'

Every field is optional and ``None`` when absent, so that a struct built by us says exactly which fields
we own (server-side apply) and one decoded from a server of another version never fails on what is new.
"""
