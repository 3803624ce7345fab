"""Where the API server is and who we are there: kubeconfig or the pod's service account."""

from __future__ import annotations

import asyncio
import base64
import binascii
import os
import ssl
import tempfile
import time
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec
import yaml

from mooring.kube.errors import ConfigError

__all__ = ["Config", "Credentials", "ExecPlugin"]

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


@dataclass(frozen=True, slots=True)
class ExecPlugin:
    """A credential plugin (``client.authentication.k8s.io``): a command that prints an ExecCredential."""

    command: str
    args: tuple[str, ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    api_version: str = "client.authentication.k8s.io/v1"


@dataclass(frozen=True, slots=True)
class Config:
    """Everything needed to open connections. Secrets never show in its ``repr``."""

    server: str
    ca_data: bytes | None = field(default=None, repr=False)
    ca_file: Path | None = None
    insecure: bool = False
    tls_server_name: str | None = None
    token: str | None = field(default=None, repr=False)
    token_file: Path | None = None
    client_cert: bytes | None = field(default=None, repr=False)
    client_key: bytes | None = field(default=None, repr=False)
    plugin: ExecPlugin | None = None
    namespace: str = "default"

    @classmethod
    def load(cls, kubeconfig: Path | None = None, context: str | None = None) -> Config:
        """Find a configuration: the given file, ``$KUBECONFIG``, ``~/.kube/config``, the pod's account."""
        if (found := _file(kubeconfig)) is not None:
            return cls.from_kubeconfig(found, context)
        if "KUBERNETES_SERVICE_HOST" in os.environ:
            return cls.in_cluster()
        raise ConfigError(
            "no kubeconfig: give --kubeconfig FILE or set KUBECONFIG "
            "(looked at ~/.kube/config, and this is not a pod)"
        )

    @staticmethod
    def contexts(kubeconfig: Path | None = None) -> list[str]:
        """The names of the contexts in the file that `load` would read; raises OSError and yaml.YAMLError."""
        found = _file(kubeconfig)
        document = (yaml.safe_load(found.read_text()) or {}) if found is not None else {}
        return [str(one["name"]) for one in document.get("contexts") or ()]

    @classmethod
    def in_cluster(cls) -> Config:
        """The service account that Kubernetes mounts into a pod; its token file is read again."""
        host, port = os.environ["KUBERNETES_SERVICE_HOST"], os.environ.get("KUBERNETES_SERVICE_PORT", "443")
        if ":" in host:
            host = f"[{host}]"
        namespace_file = SERVICE_ACCOUNT / "namespace"
        return cls(
            server=f"https://{host}:{port}",
            ca_file=SERVICE_ACCOUNT / "ca.crt",
            token_file=SERVICE_ACCOUNT / "token",
            namespace=namespace_file.read_text().strip() if namespace_file.exists() else "default",
        )

    @classmethod
    def from_kubeconfig(cls, path: Path, context: str | None = None) -> Config:
        """Read one context (default: the current one); raises :class:`ConfigError` naming what is missing."""
        try:
            document = yaml.safe_load(path.read_text()) or {}
        except OSError as error:
            raise ConfigError(f"cannot read kubeconfig {path}: {error.strerror}") from error
        except yaml.YAMLError as error:
            raise ConfigError(f"kubeconfig {path} is not YAML: {error}") from error
        name = context or document.get("current-context")
        chosen = _named(document, "contexts", name, path)["context"]
        cluster = _named(document, "clusters", chosen.get("cluster"), path)["cluster"]
        user = (
            _named(document, "users", chosen.get("user"), path).get("user") or {}
            if chosen.get("user")
            else {}
        )
        if not cluster.get("server"):
            raise ConfigError(f"kubeconfig {path}: cluster {chosen.get('cluster')!r} has no server")
        inline_ca = cluster.get("certificate-authority-data")
        ca_file = cluster.get("certificate-authority")
        return cls(
            server=cluster["server"].rstrip("/"),
            ca_data=_data(cluster, "certificate-authority", path) if inline_ca else None,
            ca_file=_relative(path, ca_file) if ca_file and not inline_ca else None,
            insecure=bool(cluster.get("insecure-skip-tls-verify")),
            tls_server_name=cluster.get("tls-server-name"),
            token=user.get("token"),
            token_file=_relative(path, user["tokenFile"]) if user.get("tokenFile") else None,
            client_cert=_data(user, "client-certificate", path),
            client_key=_data(user, "client-key", path),
            plugin=_plugin(user.get("exec")),
            namespace=chosen.get("namespace") or "default",
        )

    def ssl_context(self) -> ssl.SSLContext | None:
        """TLS settings, read afresh so that a rotated CA file counts; ``None`` for plain HTTP."""
        if not self.server.startswith("https:"):
            return None
        cafile = str(self.ca_file) if self.ca_file else None
        cadata = self.ca_data.decode() if self.ca_data else None
        try:
            context = ssl.create_default_context(cafile=cafile, cadata=cadata)
        except OSError as error:
            raise ConfigError(
                f"cannot read the authority {cafile or 'of the kubeconfig'}: {error}"
            ) from error
        if self.insecure:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if self.client_cert and self.client_key:
            with tempfile.NamedTemporaryFile() as pem:  # 0600; the ssl module reads only files
                pem.write(self.client_cert + b"\n" + self.client_key)
                pem.flush()
                context.load_cert_chain(pem.name)
        return context


def _file(given: Path | None) -> Path | None:
    """The given file, the first of ``$KUBECONFIG`` that exists, or ``~/.kube/config``."""
    if given:
        return given
    named = [Path(name) for name in os.environ.get("KUBECONFIG", "").split(os.pathsep) if name]
    return next((path for path in (*named, Path.home() / ".kube/config") if path.exists()), None)


def _named(document: dict[str, Any], section: str, name: str | None, path: Path) -> dict[str, Any]:
    for entry in document.get(section) or ():
        if entry.get("name") == name:
            found: dict[str, Any] = entry
            return found
    raise ConfigError(f"kubeconfig {path}: {section} has no entry named {name!r}")


def _relative(path: Path, value: str) -> Path:
    return (path.parent / value).resolve()


def _data(section: dict[str, Any], name: str, path: Path) -> bytes | None:
    if inline := section.get(f"{name}-data"):
        try:
            return base64.b64decode(inline, validate=True)
        except binascii.Error as error:
            raise ConfigError(f"kubeconfig {path}: {name}-data is not base64") from error
    if file := section.get(name):
        try:
            return _relative(path, file).read_bytes()
        except OSError as error:
            raise ConfigError(f"kubeconfig {path}: cannot read {name} {file}: {error.strerror}") from error
    return None


def _plugin(section: dict[str, Any] | None) -> ExecPlugin | None:
    if not section:
        return None
    return ExecPlugin(
        command=section["command"],
        args=tuple(section.get("args") or ()),
        env=tuple((e["name"], e["value"]) for e in section.get("env") or ()),
        api_version=section.get("apiVersion") or "client.authentication.k8s.io/v1",
    )


class Credentials:
    """The bearer token in force: fixed, read again from a file, or asked of a plugin."""

    #: Seconds for which a token file's content is trusted; the kubelet rotates it well before it expires.
    REFRESH = 60.0

    def __init__(self, config: Config) -> None:
        self._config = config
        self._token = config.token
        self._until = 0.0
        self._lock = asyncio.Lock()

    async def token(self) -> str | None:
        """The token to send now, or ``None`` when there is none."""
        if self._config.plugin is None and self._config.token_file is None:
            return self._token
        if time.monotonic() >= self._until:
            async with self._lock:
                if time.monotonic() >= self._until:
                    await self._refresh()
        return self._token

    def expire(self) -> None:
        """Forget the token, after a 401."""
        self._until = 0.0

    async def _refresh(self) -> None:
        if self._config.token_file:
            try:
                self._token = (await asyncio.to_thread(self._config.token_file.read_text)).strip()
            except OSError as error:
                raise ConfigError(
                    f"cannot read token file {self._config.token_file}: {error.strerror}"
                ) from error
            self._until = time.monotonic() + self.REFRESH
        elif plugin := self._config.plugin:
            self._token, lifetime = await _run_plugin(plugin)
            self._until = time.monotonic() + lifetime


async def _run_plugin(plugin: ExecPlugin) -> tuple[str | None, float]:
    info = {"apiVersion": plugin.api_version, "kind": "ExecCredential", "spec": {"interactive": False}}
    environment = {
        **os.environ,
        **dict(plugin.env),
        "KUBERNETES_EXEC_INFO": msgspec.json.encode(info).decode(),
    }
    try:
        process = await asyncio.create_subprocess_exec(
            plugin.command, *plugin.args, env=environment, stdout=asyncio.subprocess.PIPE
        )
        async with asyncio.timeout(60):
            output, _ = await process.communicate()
    except (OSError, TimeoutError) as error:
        raise ConfigError(
            f"credential plugin {plugin.command!r} failed: {error or 'no answer in 60 s'}"
        ) from error
    if process.returncode:
        raise ConfigError(f"credential plugin {plugin.command!r} ended with status {process.returncode}")
    try:
        status = msgspec.json.decode(output)["status"]
        token = status.get("token")
        lifetime = 3600.0
        if expiry := status.get("expirationTimestamp"):
            lifetime = max(1.0, datetime.fromisoformat(expiry).timestamp() - time.time() - 30)
    except (msgspec.MsgspecError, KeyError, ValueError) as error:
        raise ConfigError(f"credential plugin {plugin.command!r} printed no ExecCredential") from error
    return token, lifetime
