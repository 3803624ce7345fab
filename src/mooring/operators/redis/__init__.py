"""Redis in both its forms: what the sentinel and the cluster operator share.

`versions` knows what a server version can do, `parameters` what a configuration key means, `dial` how to
talk to one server under a fence, `pods` and `shell` what their pods have in common.
"""

from typing import Final

__all__ = ["SCOPE_ANNOTATION"]

SCOPE_ANNOTATION: Final = "redis.kun/scope"
"""UCloud's annotation that marks a cluster for operators of scope ``cluster``; both kinds take it."""
