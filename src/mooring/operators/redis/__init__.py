"""Redis in both its forms: what the sentinel and the cluster operator share.

`versions` knows what a server version can do, `parameters` what a configuration key means, `dial` how to
talk to one server under a fence, `parts` and `shell` what their pods have in common.
"""

__all__: list[str] = []
