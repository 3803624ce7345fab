"""MySQLCluster -> Deployment: the tutorial's operator, done right.

python mooring_operator.py --crd | kubectl apply -f -      # once
python mooring_operator.py                                 # KUBECONFIG says where
"""

import asyncio
import signal
import sys
from typing import Annotated, ClassVar

from mooring.actor import Actor, Context, Outcome, run_actor
from mooring.kube import Client, Config, HttpTransport, Object, Part, Resource
from mooring.kube.objects.apps import Deployment, DeploymentSpec
from mooring.kube.objects.core import Container, ContainerPort, PodSpec, PodTemplateSpec
from mooring.kube.objects.meta import Condition, LabelSelector, ObjectMeta
from mooring.runtime import Election, F, Manager, PrinterColumn, configure_logging, crd, render_crd
from mooring.runtime.crd import to_yaml


class Spec(Part, frozen=True, kw_only=True):
    size: Annotated[int | None, F("Number of MySQL instances.", minimum=0, maximum=100, default=1)] = None
    image: Annotated[str | None, F("MySQL image to use.", required=True, min_length=1)] = None


class Status(Part, frozen=True, kw_only=True):
    observed_generation: int | None = None
    available_replicas: Annotated[int | None, F("Instances that are available.")] = None
    conditions: list[Condition] | None = None


@crd(
    short_names=("mc",),
    columns=(
        PrinterColumn("Size", ".spec.size", type="integer"),
        PrinterColumn("Available", ".status.availableReplicas", type="integer"),
        PrinterColumn("Ready", ".status.conditions[?(@.type=='Ready')].status"),
    ),
)
class MySQLCluster(Object, frozen=True, kw_only=True):
    """A number of MySQL instances."""

    resource: ClassVar[Resource] = Resource("example.com", "v1", "MySQLCluster", "mysqlclusters")
    spec: Spec | None = None
    status: Status | None = None


def deployment(cluster: MySQLCluster) -> Deployment:
    """What a cluster wants; pure, so a test needs no server."""
    spec, name = cluster.spec or Spec(), cluster.metadata.name
    labels = {"app": "mysql", "controller": name or ""}
    container = Container(name="mysql", image=spec.image, ports=[ContainerPort(container_port=3306)])
    return Deployment(
        metadata=ObjectMeta(name=name, labels=labels),
        spec=DeploymentSpec(
            replicas=1 if spec.size is None else spec.size,
            selector=LabelSelector(match_labels=labels),
            template=PodTemplateSpec(
                metadata=ObjectMeta(labels=labels), spec=PodSpec(containers=[container])
            ),
        ),
    )


class MySQLActor(Actor[MySQLCluster]):
    kind = MySQLCluster
    name = "mysql-tutorial"
    owns = (Deployment,)

    async def observe(self, ctx: Context[MySQLCluster]) -> Outcome:
        wanted = deployment(ctx.obj)
        drift = ctx.children.diff([wanted])
        if drift.foreign:
            return ctx.wait("NotOwned", f"{drift.foreign[0]}; delete or rename it", stalled=True)
        if drift:
            return ctx.act("ApplyDeployment", ctx.children.apply, drift)
        live = ctx.children.find(Deployment, wanted.metadata.name or "")
        size = wanted.spec.replicas if wanted.spec else 0
        available = (live.status.available_replicas if live and live.status else None) or 0
        ctx.show(Status(available_replicas=available))
        if available != size:
            return ctx.wait("PodsNotReady", f"{available} of {size} instances are available")
        return ctx.in_sync(f"{size} instances are available")


async def main() -> None:
    client = Client(HttpTransport(Config.load()))
    manager = Manager(client, name="mysql-tutorial", election=Election("mysql-tutorial", "default"))
    run_actor(MySQLActor(), manager)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, manager.stop)
    await manager.run()


if __name__ == "__main__":
    if "--crd" in sys.argv:
        sys.stdout.write(to_yaml(render_crd(MySQLCluster)))
    else:
        configure_logging()
        asyncio.run(main())
