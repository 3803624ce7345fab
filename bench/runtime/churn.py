"""Updates ConfigMaps that belong to nobody, as fast as the server takes it, up to a rate.

    KUBECONFIG=FILE python -m bench.runtime.churn NAMESPACE SECONDS RATE

Prints JSON: how many updates were done in how many seconds.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from pathlib import Path

from mooring.kube import Client, Config, HttpTransport, MergePatch
from mooring.kube.objects.core import ConfigMap
from mooring.kube.objects.meta import ObjectMeta

OBJECTS = 64


async def main(namespace: str, seconds: float, rate: float) -> None:
    """Create the ConfigMaps, update them in turns, print."""
    client = Client(HttpTransport(Config.load(Path(os.environ["KUBECONFIG"]))))
    names = [f"unrelated-{number}" for number in range(OBJECTS)]
    for name in names:
        await client.create(ConfigMap(metadata=ObjectMeta(name=name, namespace=namespace)))
    done, began = 0, time.monotonic()

    async def keep(name: str) -> None:
        nonlocal done
        while (now := time.monotonic() - began) < seconds:
            done += 1
            if (early := done / rate - now) > 0:
                await asyncio.sleep(early)
            patch = MergePatch({"data": {"count": str(done)}})
            await client.patch(ConfigMap, name, patch, namespace=namespace)

    await asyncio.gather(*(keep(name) for name in names))
    print(json.dumps({"updates": done, "seconds": round(time.monotonic() - began, 2)}))
    await client.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], float(sys.argv[2]), float(sys.argv[3])))
