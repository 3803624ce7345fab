"""Directory -> a directory outside Kubernetes, removed with its object: an external resource and a finalizer.

    python directory_operator.py --crd | kubectl apply -f -
    python directory_operator.py --root /tmp/directories

The file system stands for whatever a real operator talks to: a bucket, a DNS zone, a user in a database. What
matters is the pattern: look, take one step that may be repeated, look again.
"""

import argparse
import asyncio
import signal
import sys
from pathlib import Path
from typing import Annotated, ClassVar

from mooring.actor import Actor, Context, Outcome, run_actor
from mooring.kube import Client, Config, HttpTransport, Object, Part, Resource
from mooring.kube.objects.meta import Condition
from mooring.runtime import Election, F, Manager, PrinterColumn, configure_logging, crd, render_crd
from mooring.runtime.crd import to_yaml

#: Files removed by one step: a step is short, so that the deletion can be followed and interrupted.
BATCH = 100


class Spec(Part, frozen=True, kw_only=True):
    mode: Annotated[str | None, F("Permissions, octal.", pattern="^0[0-7]{3}$", default="0750")] = None
    deletion: Annotated[
        str | None,
        F(
            "Delete removes the files with the object; Retain leaves them.",
            enum=["Delete", "Retain"],
            default="Retain",
        ),
    ] = None


class Status(Part, frozen=True, kw_only=True):
    observed_generation: int | None = None
    path: Annotated[str | None, F("Where it is.")] = None
    conditions: list[Condition] | None = None


@crd(columns=(PrinterColumn("Path", ".status.path"),))
class Directory(Object, frozen=True, kw_only=True):
    """A directory on the operator's machine."""

    resource: ClassVar[Resource] = Resource("examples.mooring.dev", "v1", "Directory", "directories")
    spec: Spec | None = None
    status: Status | None = None


class DirectoryActor(Actor[Directory]):
    kind = Directory
    name = "directory"
    finalizer = "examples.mooring.dev/directory"

    def __init__(self, root: Path) -> None:
        self._root = root

    def path(self, obj: Directory) -> Path:
        """Named after the UID: a new object of an old name never gets the old one's files."""
        return self._root / (obj.metadata.uid or "")

    async def observe(self, ctx: Context[Directory]) -> Outcome:
        path, spec = self.path(ctx.obj), ctx.obj.spec or Spec()
        mode = int(spec.mode or "0750", 8)
        found = await asyncio.to_thread(_mode_of, path)  # never block the event loop
        if found != mode:
            return ctx.act("Make", self._make, ctx, path, mode)
        ctx.show(Status(path=str(path)))
        # Nobody tells us when the file system changes, so look again now and then.
        return ctx.in_sync(again=60)

    async def finalize(self, ctx: Context[Directory]) -> Outcome:
        path, spec = self.path(ctx.obj), ctx.obj.spec or Spec()
        if spec.deletion != "Delete" or await asyncio.to_thread(_mode_of, path) is None:
            return ctx.in_sync("nothing is left to clean up")
        files = await asyncio.to_thread(_files_in, path)
        if not files:
            return ctx.act("RemoveDirectory", self._remove, ctx, path)
        # The message is in the status before the step is taken: people see how far it is.
        message = f"{len(files)} files left"
        return ctx.act("RemoveFiles", self._unlink, ctx, files[:BATCH], message=message)

    async def _make(self, ctx: Context[Directory], path: Path, mode: int) -> None:
        ctx.fence()  # right before every effect outside Kubernetes: do we still hold the Lease?
        await asyncio.to_thread(path.mkdir, parents=True, exist_ok=True)
        await asyncio.to_thread(path.chmod, mode)
        await ctx.did(f"made {path}")  # a point at which a test may let the process die

    async def _unlink(self, ctx: Context[Directory], files: list[Path]) -> None:
        for file in files:
            ctx.fence()
            await asyncio.to_thread(file.unlink, missing_ok=True)
            await ctx.did(f"removed {file}")

    async def _remove(self, ctx: Context[Directory], path: Path) -> None:
        ctx.fence()
        await asyncio.to_thread(path.rmdir)
        await ctx.did(f"removed {path}")


def _mode_of(path: Path) -> int | None:
    try:
        return path.stat().st_mode & 0o7777
    except FileNotFoundError:
        return None


def _files_in(path: Path) -> list[Path]:
    return sorted(path.iterdir())


async def main(root: Path) -> None:
    client = Client(HttpTransport(Config.load()))
    manager = Manager(client, name="directory", election=Election("directory", "default"))
    run_actor(DirectoryActor(root), manager)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, manager.stop)
    await manager.run()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--root", type=Path, help="where the directories are made")
    parser.add_argument("--crd", action="store_true", help="print the CRD and end")
    options = parser.parse_args()
    if options.crd:
        sys.stdout.write(to_yaml(render_crd(Directory)))
    elif options.root is None:
        parser.error("--root is needed: where shall the directories be?")
    else:
        configure_logging()
        asyncio.run(main(options.root))
