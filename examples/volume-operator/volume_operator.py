"""EphemeralVolumeClaim -> PersistentVolumeClaim: the operator of kopf's tutorial, written with Mooring.

python volume_operator.py --crd | kubectl apply -f -       # once
python volume_operator.py                                  # KUBECONFIG says where
"""

import asyncio
import signal
import sys
from typing import Annotated, ClassVar

from mooring.actor import Actor, Context, Outcome, run_actor
from mooring.kube import Client, Config, HttpTransport, Object, Part, Resource
from mooring.kube.objects.core import (
    PersistentVolumeClaim,
    PersistentVolumeClaimSpec,
    VolumeResourceRequirements,
)
from mooring.kube.objects.meta import Condition, ObjectMeta
from mooring.runtime import Election, F, Manager, configure_logging, crd, render_crd
from mooring.runtime.crd import to_yaml


class Spec(Part, frozen=True, kw_only=True):
    size: Annotated[
        str | None, F("Room, such as 1G.", required=True, pattern=r"^[0-9]+(\.[0-9]+)?([KMGT]i?)?$")
    ] = None


class Status(Part, frozen=True, kw_only=True):
    observed_generation: int | None = None
    conditions: list[Condition] | None = None


@crd(short_names=("evc",))
class EphemeralVolumeClaim(Object, frozen=True, kw_only=True):
    """A volume that goes with its object."""

    resource: ClassVar[Resource] = Resource("kopf.dev", "v1", "EphemeralVolumeClaim", "ephemeralvolumeclaims")
    spec: Spec | None = None
    status: Status | None = None


def claim(evc: EphemeralVolumeClaim) -> PersistentVolumeClaim:
    """The claim that an object wants; pure, so a test needs no server."""
    size = (evc.spec.size if evc.spec else None) or "1G"
    return PersistentVolumeClaim(
        metadata=ObjectMeta(name=evc.metadata.name, labels=evc.metadata.labels),
        spec=PersistentVolumeClaimSpec(
            access_modes=["ReadWriteOnce"], resources=VolumeResourceRequirements(requests={"storage": size})
        ),
    )


class VolumeActor(Actor[EphemeralVolumeClaim]):
    kind = EphemeralVolumeClaim
    name = "volume-tutorial"
    owns = (PersistentVolumeClaim,)

    async def observe(self, ctx: Context[EphemeralVolumeClaim]) -> Outcome:
        drift = ctx.children.diff([claim(ctx.obj)])
        if drift.foreign:
            return ctx.wait("NotOwned", f"{drift.foreign[0]}; delete or rename it", stalled=True)
        if drift:
            return ctx.act("ApplyClaim", ctx.children.apply, drift)
        ctx.show(Status())
        return ctx.in_sync("the claim is as declared")


async def main() -> None:
    client = Client(HttpTransport(Config.load()))
    manager = Manager(client, name="volume-tutorial", election=Election("volume-tutorial", "default"))
    run_actor(VolumeActor(), manager)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, manager.stop)
    await manager.run()


if __name__ == "__main__":
    if "--crd" in sys.argv:
        sys.stdout.write(to_yaml(render_crd(EphemeralVolumeClaim)))
    else:
        configure_logging()
        asyncio.run(main())
