"""The images that pods of Kubernetes' own specs run, under the names by which the specs ask for them.

Their programs are those of the true images where that matters: agnhost is built of Kubernetes' sources, busybox and
nginx come from Debian. The names are those of Kubernetes 1.36.3: `e2e.test --list-images` prints them.
"""

from __future__ import annotations

import subprocess
import tarfile
import tempfile
from pathlib import Path

from hack.images.archive import Config, add_directory, add_file, add_link
from hack.images.debian import fetch, resolve
from hack.images.recipes import Recipe, make
from hack.images.recipes import build as build_cluster_image
from hack.kubernetes.binaries import AGNHOST, AGNHOST_MODULE
from hack.kubernetes.binaries import build as build_programs

from mooring.local.api.tls import ensure_certificates

__all__ = ["IMAGES", "build", "build_all"]

_TESTING = "registry.k8s.io/e2e-test-images"
_NGINX = b"""\
user nobody nobody;
error_log /dev/stderr;
pid /run/nginx.pid;
events {}
http {
  include /etc/nginx/mime.types;
  access_log /dev/stdout;
  server {
    listen 80;
    root /usr/share/nginx/html;
  }
}
"""


def build(name: str) -> Path:
    """The archive of one of these images; built on first use."""
    return make(name, IMAGES[name])


def build_all() -> list[Path]:
    """The archives of all of them."""
    return [build(name) for name in IMAGES]


def _agnhost() -> Path:
    return build_programs(AGNHOST, module=AGNHOST_MODULE) / "agnhost"


def _fill_agnhost(layer: tarfile.TarFile) -> None:
    add_link(layer, "usr/bin/nc", "nc.openbsd")  # as Debian's script would have made it
    add_link(layer, "usr/bin/sh", "bash")  # busybox' own prefers its applets to programs
    _fill_busybox(layer)
    add_file(layer, "agnhost", _agnhost().read_bytes(), mode=0o755)
    with tempfile.TemporaryDirectory(prefix="mooring-agnhost-") as place:
        made = ensure_certificates(Path(place), ["127.0.0.1"])  # its web servers show and use them
        add_file(layer, "localhost.crt", made.certificate.read_bytes())
        add_file(layer, "localhost.key", made.key.read_bytes())
    add_link(layer, "agnhost-2", "agnhost")
    add_directory(layer, "uploads")


def _fill_small(layer: tarfile.TarFile) -> None:
    add_link(layer, "usr/bin/sh", "bash-static")
    _fill_busybox(layer)


def _fill_busybox(layer: tarfile.TarFile) -> None:
    """A link for every applet of busybox that no package has as a program."""
    there = {Path(name).name for name in layer.getnames() if name.startswith(("usr/bin/", "usr/sbin/"))}
    for applet in _applets():
        if applet not in there:
            add_link(layer, f"usr/bin/{applet}", "busybox")


def _fill_nginx(layer: tarfile.TarFile) -> None:
    _fill_busybox(layer)
    add_file(layer, "etc/nginx/image.conf", _NGINX)


def _applets() -> list[str]:
    """What busybox says it can do."""
    names = ["busybox-static"]
    package = next(one for one in resolve(names) if one.name == "busybox-static")
    with tempfile.TemporaryDirectory(prefix="mooring-busybox-") as place:
        subprocess.run(["dpkg-deb", "-x", *fetch(names, [package]), place], check=True)
        program = next(path for path in Path(place).glob("**/bin/busybox") if not path.is_symlink())
        return subprocess.run([program, "--list"], check=True, capture_output=True, text=True).stdout.split()


def _shows(picture: str) -> Recipe:
    """A web server that says the name of a picture."""
    return Recipe(
        config=lambda: Config(
            name=f"{_TESTING}/{picture}:1.8", entrypoint=("/agnhost",), command=("test-webserver",)
        ),
        base=lambda: build("agnhost"),
        fill=lambda layer: add_file(layer, "data.json", b'{\n  "image": "%s.jpg"\n}\n' % picture.encode()),
    )


IMAGES: dict[str, Recipe] = {
    "agnhost": Recipe(
        config=lambda: Config(
            name=f"{_TESTING}/agnhost:2.63.0",
            aliases=(f"{_TESTING}/agnhost:2.55",),
            entrypoint=("/agnhost",),
            command=("pause",),
        ),
        packages=(
            "busybox-static",
            "bash",
            "curl",
            "bind9-dnsutils",
            "netcat-openbsd",
            "iproute2",
            "libc-bin",
        ),
        without=("base-files", "debconf", "debianutils", "gcc-12-base", "mawk"),
        fill=_fill_agnhost,
        inputs=lambda: Path(__file__).read_bytes() + _agnhost().parent.name.encode(),
    ),
    "busybox": Recipe(
        config=lambda: Config(name=f"{_TESTING}/busybox:1.37.0-1", command=("sh",)),
        # Debian's busybox forgets variables whose names no shell knows, such as data-1; the specs look for them.
        packages=("busybox-static", "bash-static"),
        fill=_fill_small,
        inputs=Path(__file__).read_bytes,
    ),
    "nonroot": Recipe(
        config=lambda: Config(name=f"{_TESTING}/nonroot:1.5", command=("sh",), user="1234"),
        base=lambda: build("busybox"),
    ),
    "nonewprivs": Recipe(
        config=lambda: Config(name=f"{_TESTING}/nonewprivs:1.4", entrypoint=("/nnp", "nonewprivs")),
        base=lambda: build("pod-pause"),
        fill=lambda layer: add_file(layer, "nnp", _agnhost().read_bytes(), mode=0o4755),
        inputs=lambda: _agnhost().parent.name.encode(),
    ),
    "pod-pause": Recipe(
        config=lambda: Config(
            name="registry.k8s.io/pause:3.10.2", entrypoint=("/pause",), user="65535:65535"
        ),
        base=lambda: build_cluster_image("pause"),
    ),
    "kitten": _shows("kitten"),
    "nautilus": _shows("nautilus"),
    "dns-testing": Recipe(
        config=lambda: Config(name=f"{_TESTING}/glibc-dns-testing:2.0.0", command=("bash",)),
        base=lambda: build("agnhost"),
    ),
    "nginx": Recipe(
        config=lambda: Config(
            name=f"{_TESTING}/nginx:1.15-4",
            aliases=(f"{_TESTING}/nginx:1.27-0",),
            command=("nginx", "-c", "/etc/nginx/image.conf", "-g", "daemon off;"),
        ),
        packages=("nginx-light", "busybox-static"),
        fill=_fill_nginx,
        inputs=Path(__file__).read_bytes,
    ),
}
