"""What we know of the cluster: stores that keep themselves current and read the process's own writes.

`InformerSet.of(Pod)` gives an `Informer`: look objects up by key or index, be told of every `Transition`.
The store's one rule (integer versions, tombstones, the answers to our own writes) is in `store`, the
conversation with the server in `reflector`. Stands on `mooring.kube` alone.
"""

from mooring.cache.backoff import StreamBackoff
from mooring.cache.clock import Clock, Deadline, SystemClock, Timer, Watchdog, rfc3339
from mooring.cache.errors import BadObject, CacheError, NotCached, OutsideFilter
from mooring.cache.informer import Handler, Informer, InformerPool, InformerSet, selects
from mooring.cache.reflector import Reflector, Sink, gc_suspended
from mooring.cache.store import Origin, Store, Transition, version_of

__all__ = [
    "BadObject",
    "CacheError",
    "Clock",
    "Deadline",
    "Handler",
    "Informer",
    "InformerPool",
    "InformerSet",
    "NotCached",
    "Origin",
    "OutsideFilter",
    "Reflector",
    "Sink",
    "Store",
    "StreamBackoff",
    "SystemClock",
    "Timer",
    "Transition",
    "Watchdog",
    "gc_suspended",
    "rfc3339",
    "selects",
    "version_of",
]
