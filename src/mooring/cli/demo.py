"""``mooring demo``: a database cluster that survives faults, before your eyes.

A control plane in a directory of its own, an example applied, faults under a writer that remembers every acknowledged
write; then it stays up for you to look around, or ends by itself without a terminal. What can be shown, and by which story,
each operator says (`mooring.operators.operator.Demo`).
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import sys
import tempfile
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import yaml

from mooring.cli.failure import INTERRUPTED, explain
from mooring.cli.packages import NODE, ensure
from mooring.cli.program import program
from mooring.cli.run import until_signalled
from mooring.cli.up import Up, console_socket, enter_namespaces, serve
from mooring.local.directory import DataDirectory
from mooring.local.plane import Plane, PlaneOptions
from mooring.operators.host import Operate
from mooring.operators.operator import Demo
from mooring.operators.registry import OPERATORS, choose
from mooring.runtime import configure_logging
from mooring.testing.show import Manifest, Show

__all__ = ["add_parser", "example", "read_manifest"]

#: Where the demo keeps its data, told to the process it becomes as a plain user.
_DIRECTORY = "MOORING_DEMO_DIR"
_DEMOS: Final[dict[str, Demo]] = {
    one.demo.name: one.demo for one in OPERATORS.values() if one.demo is not None
}
_DEFAULT: Final = next(iter(_DEMOS))


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command."""
    parser = commands.add_parser("demo", help="start here: a database cluster that survives faults")
    parser.add_argument("--listen", default="127.0.0.1:0", metavar="ADDR:PORT", help="default: any free port")
    parser.add_argument(
        "--what",
        choices=list(_DEMOS),
        default=_DEFAULT,
        help="; ".join(f"{one.name}: {one.doc}" for one in _DEMOS.values()) + f" (default: {_DEFAULT})",
    )
    parser.add_argument("--file", type=Path, help="the manifest (default: the example)")
    parser.add_argument("--verbose", action="store_true", help="show the log of the control plane")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Run the demo; 0 only if everything it promises has happened.

    Ctrl-C after that is how it is meant to end: 0. Before, it cuts the story short: 130.
    """
    manifest = read_manifest(options.file or example(options.what), options.what)
    story = _story(options.what)
    if lacks := story.missing(manifest):
        raise ValueError(lacks)
    ensure(NODE)
    configure_logging(level="info" if options.verbose else "error")
    path = Path(os.environ.get(_DIRECTORY) or tempfile.mkdtemp(prefix="mooring-demo-"))
    os.environ[_DIRECTORY] = str(path)
    directory = DataDirectory(path)
    console = console_socket()
    try:
        socks = enter_namespaces(directory, options.listen, console=console)
        stay = sys.stdin.isatty() and sys.stdout.isatty()
        show = story(directory, manifest, stay=stay, program=program())
        up = Up(
            plane=PlaneOptions(directory=directory, nodes=("demo",)),
            socks=socks,
            operate=Operate(operators=choose("*")),
            kubeconfig=directory.kubeconfig,
            console=console,
        )
        interrupted = asyncio.run(until_signalled(serve_until_done(up, show)))
    finally:
        shutil.rmtree(path, ignore_errors=True)
    if show.failure is not None:
        print(f"mooring: the demo failed: {explain(show.failure)}", file=sys.stderr)
        return 1
    if interrupted and not show.told:
        print("mooring: interrupted before the demo was over", file=sys.stderr)
        return INTERRUPTED
    return 0


def _story(what: str) -> type[Show]:
    module, _, name = _DEMOS[what].story.partition(":")
    found: type[Show] = getattr(import_module(module), name)
    return found


def example(what: str = _DEFAULT) -> Path:
    """The example to show: in a clone below examples/, in an installed package beside this module."""
    root = Path(os.environ.get("MOORING_ROOT", Path(__file__).resolve().parents[3]))
    name = _DEMOS[what].example
    packaged, path = Path(__file__).with_name(name), root / "examples" / name
    if not packaged.exists() and not path.exists():
        raise ValueError(f"{path} is missing; give a manifest with --file")
    return packaged if packaged.exists() else path


def read_manifest(path: Path, what: str = _DEFAULT) -> Manifest:
    """Read and check a manifest before anything is started; raises :class:`ValueError` naming the remedy."""
    try:
        documents = tuple(document for document in yaml.safe_load_all(path.read_text()) if document)
    except OSError as error:
        raise ValueError(f"cannot read the manifest {path}: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ValueError(f"the manifest {path} is not YAML: {' '.join(str(error).split())}") from error
    for number, document in enumerate(documents, 1):
        if not _is_object(document):
            raise ValueError(
                f"the manifest {path}: document {number} lacks apiVersion, kind or metadata.name"
            )
    resource = _DEMOS[what].kind.resource
    kind, version = resource.kind, resource.api_version
    clusters = [d for d in documents if d["kind"] == kind and d["apiVersion"] == version]
    if len(clusters) != 1:
        raise ValueError(
            f"the manifest {path} holds {len(clusters)} objects of kind {kind} ({version}); the demo shows one"
        )
    return Manifest(path, documents, clusters[0])


def _is_object(document: Any) -> bool:
    if not isinstance(document, dict) or not isinstance(document.get("metadata"), dict):
        return False
    words = (document.get("apiVersion"), document.get("kind"), document["metadata"].get("name"))
    return all(isinstance(word, str) and word for word in words)


async def serve_until_done(up: Up, show: Show) -> None:
    """Serve, play the show, and end when it is over."""
    over = asyncio.Event()

    async def play(plane: Plane) -> None:
        try:
            await show.play(plane)
        finally:
            over.set()

    serving = asyncio.create_task(serve(up, play))
    ended = asyncio.create_task(over.wait())
    try:
        await asyncio.wait({serving, ended}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        ended.cancel()
        if not serving.done():
            show.say("stopping")
            serving.cancel()
        results = await asyncio.gather(serving, return_exceptions=True)
    for result in results:
        if isinstance(result, (Exception, BaseExceptionGroup)) and show.failure is None:
            show.failure = result
