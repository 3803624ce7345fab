"""Take the pictures of docs/console.md: a real `mooring up`, a real Redis, Chromium, both languages and themes.

    python -m hack.screenshots [--out docs/console]

The steps are those of the KUN article: choose a service, fill in one shared page, watch it come up, look at its parts,
change its parameters while it runs, back it up, shared and private operators side by side, delete. Needs what the browser tests need, and a font with Chinese letters,
such as Debian's fonts-wqy-microhei. Those in Chinese are in the directory zh-CN below the others.
Pictures are reduced to 256 colours, which a page of flat colours does not show.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import contextlib
import json
import struct
import subprocess
import sys
import tempfile
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from hack.chromium import browser, running, until
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import WebDriverWait

from mooring.kube import Client, Config, HttpTransport

__all__ = ["STEPS", "main", "reduced"]

ROOT: Final = Path(__file__).resolve().parents[1]
WIDTH, HEIGHT, SECONDS = 1120, 720, 90.0
COLOURS: Final = 256
THEMES: Final = ("light", "dark")
#: Languages of the page, and where their pictures are.
LANGUAGES: Final = {"en": "", "zh-CN": "zh-CN"}


#: Press the button with this text, also behind a dialog; wait until the page is drawn again.
PRESS: Final = (
    "[...document.querySelectorAll('.bar button')].find(b => b.textContent === arguments[0]).click()"
)
DRAWN: Final = "const done = arguments[0]; requestAnimationFrame(() => requestAnimationFrame(() => done()))"


class Stage:
    """A browser at a running console, and where pictures go."""

    def __init__(self, driver: webdriver.Chrome, address: str, out: Path) -> None:
        self.driver = driver
        self._address = address
        self._out = out

    def go(self, route: str) -> None:
        """Load a page again."""
        self.driver.get("about:blank")
        self.driver.get(f"{self._address}/#/{route}")

    def shows(self, text: str) -> None:
        """Wait for a text."""
        script = "return document.body.innerText.includes(arguments[0])"
        self.wait(lambda: self.driver.execute_script(script, text), text)

    def there(self, test_id: str) -> Any:
        """The part of the page with this id, once it is there."""
        found = f"[data-testid={test_id}]"
        self.wait(lambda: self.driver.find_elements(By.CSS_SELECTOR, found), test_id)
        return self.driver.find_element(By.CSS_SELECTOR, found)

    def wait(self, found: Callable[[], Any], what: str) -> None:
        """Wait until something is so."""
        WebDriverWait(self.driver, SECONDS, poll_frequency=0.05).until(lambda _: found(), message=what)

    def type(self, field: str, text: str) -> None:
        """Write into a field in place of what is there."""
        place = self.driver.find_element(By.ID, f"field-{field}")
        place.send_keys(Keys.CONTROL, "a")
        place.send_keys(text)

    def running(self, name: str) -> None:
        """Wait until the instance of the page is running."""
        script = "return document.querySelector('[data-testid=phase]')?.dataset.phase"
        self.wait(lambda: self.driver.execute_script(script) == "Running", f"{name} is not running")

    def picture(self, name: str) -> None:
        """Keep what is seen, in both languages and themes; all are taken before any is reduced, which takes a while."""
        shots = {}
        for language, place in LANGUAGES.items():
            self._speak(language)
            for theme in THEMES:
                media = [{"name": "prefers-color-scheme", "value": theme}]
                self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": media})
                shot = self.driver.execute_cdp_cmd("Page.captureScreenshot", {"format": "png"})
                shots[self._out / place / f"{name}-{theme}.png"] = base64.b64decode(shot["data"])
        self._speak("en")
        for path, shot in shots.items():
            path.write_bytes(reduced(shot))
            print(f"{path}: {path.stat().st_size / 1024:.0f} KiB", flush=True)

    def _speak(self, language: str) -> None:
        """Change the language by the page's own button, which leaves everything else as it is."""
        spoken = "return document.documentElement.lang"
        if self.driver.execute_script(spoken) != language:
            self.driver.execute_script(PRESS, {"en": "English", "zh-CN": "中文"}[language])
            self.wait(lambda: self.driver.execute_script(spoken) == language, language)
            # The next frame is drawn in it.
            self.driver.execute_async_script(DRAWN)


def catalog(stage: Stage) -> None:
    stage.go("catalog")
    stage.there("create-redis-sentinel")
    stage.picture("1-catalog")


def create(stage: Stage) -> None:
    stage.there("create-redis-sentinel").click()
    stage.shows("The cluster accepts this.")
    stage.type("name", "cache")
    stage.wait(lambda: "name: cache" in stage.there("manifest").text, "the manifest")
    stage.shows("The cluster accepts this.")
    stage.picture("2-create")
    stage.there("submit").click()


def progress(stage: Stage) -> None:
    stage.there("timeline")
    stage.there("why")
    stage.picture("3-progress")


def ready(stage: Stage) -> None:
    stage.running("cache")
    stage.shows("Healthy")
    stage.wait(lambda: not stage.driver.find_elements(By.CSS_SELECTOR, "[data-testid=why]"), "no why")
    stage.picture("4-running")


def topology(stage: Stage) -> None:
    stage.driver.find_element(By.ID, "tab-topology").click()
    stage.wait(lambda: stage.there("pods-redis").text.count("Online") == 3, "three servers")
    stage.picture("5-topology")


def parameters(stage: Stage) -> None:
    stage.go("instances/default/redis-sentinel/cache/edit")
    stage.there("apply")
    for details in stage.driver.find_elements(By.CSS_SELECTOR, "details:not([open]) > summary"):
        details.click()
    stage.type("maxclients", "5000")
    stage.wait(lambda: stage.there("apply").is_enabled(), "the dry run")
    stage.driver.execute_script("window.scrollTo(0, 0)")
    stage.picture("6-parameters")


def metrics(stage: Stage) -> None:
    stage.go("instances/default/redis-sentinel/cache?tab=metrics")
    stage.there("usage")
    lines = "return (document.querySelector('.chart .line')?.getAttribute('d') ?? '').split('L').length"
    stage.wait(lambda: stage.driver.execute_script(lines) >= 3, "a line of three points")
    stage.picture("7-metrics")


def terminal(stage: Stage) -> None:
    stage.go("instances/default/redis-sentinel/cache?tab=terminal")
    stage.there("terminal-open").click()
    line = stage.there("terminal-line")
    stage.wait(line.is_enabled, "the shell")
    line.send_keys("redis-cli info replication | head -4", Keys.ENTER)
    stage.wait(lambda: "role:" in stage.there("terminal").text, "an answer of Redis")
    stage.picture("8-terminal")


def backups(stage: Stage) -> None:
    stage.go("instances/default/redis-sentinel/cache?tab=backups")
    for what, called in (("backups", "cache-first"), ("schedules", "cache-nightly")):
        stage.there(f"make-{what}").click()
        stage.there("make-dialog")
        stage.type("related", called)
        stage.type("claim", "kept")
        if what == "backups":
            stage.driver.find_element(By.ID, "field-verify").click()
        stage.wait(lambda: stage.there("confirm-make").is_enabled(), "the dry run")
        stage.there("confirm-make").click()
        stage.there(f"related-{called}")
    stage.wait(lambda: "yes" in stage.there("related-cache-first").text, "a verified backup")
    stage.wait(lambda: "in " in stage.there("related-cache-nightly").text, "the next one")
    stage.picture("9-backups")


def activity(stage: Stage) -> None:
    stage.go("activity?namespace=default")
    stage.wait(lambda: "RedisBackup cache-first" in stage.there("activity").text, "the backup")
    stage.picture("10-activity")


def operators(stage: Stage) -> None:
    stage.go("operators")
    stage.wait(lambda: "private" in stage.there("operators").text, "the private operator")
    stage.there("ask-upgrade").click()
    stage.there("upgrade-count")
    stage.picture("11-operators")


def instances(stage: Stage) -> None:
    stage.go("instances")
    stage.there("row-cache")
    stage.wait(lambda: stage.driver.find_elements(By.CSS_SELECTOR, "[data-testid=row-orders]"), "orders")
    script = "return document.querySelectorAll('[data-phase=Running]').length"
    stage.wait(lambda: stage.driver.execute_script(script) == 2, "two that run")
    stage.picture("12-instances")


def templates(stage: Stage) -> None:
    stage.go("templates")
    stage.there("template-good")
    stage.picture("13-templates")


def delete(stage: Stage) -> None:
    stage.go("instances/default/redis-sentinel/cache")
    stage.there("delete").click()
    stage.shows("What stays")
    stage.picture("14-delete")


#: What is pictured, in this order: each goes on from where the one before has ended.
STEPS: Final = (
    catalog,
    create,
    progress,
    ready,
    topology,
    parameters,
    metrics,
    terminal,
    backups,
    activity,
    operators,
    instances,
    templates,
    delete,
)


# --- pictures


def reduced(png: bytes) -> bytes:
    """A PNG of 8-bit RGB(A) with its 256 most frequent colours, others led to the nearest of them."""
    width, height, colours = _read(png)
    frequent = [colour for colour, _ in Counter(colours).most_common(COLOURS)]
    nearest = {colour: index for index, colour in enumerate(frequent)}

    def index(colour: bytes) -> int:
        if (known := nearest.get(colour)) is None:
            red, green, blue = colour
            known = min(
                range(len(frequent)),
                key=lambda at: (
                    (frequent[at][0] - red) ** 2
                    + (frequent[at][1] - green) ** 2
                    + (frequent[at][2] - blue) ** 2
                ),
            )
            nearest[colour] = known
        return known

    rows = bytes(map(index, colours))
    raw = b"".join(b"\0" + rows[at : at + width] for at in range(0, width * height, width))
    head = struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)
    parts = (
        (b"IHDR", head),
        (b"PLTE", b"".join(frequent)),
        (b"IDAT", zlib.compress(raw, 9)),
        (b"IEND", b""),
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(kind, data) for kind, data in parts)


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def _read(png: bytes) -> tuple[int, int, list[bytes]]:
    """Width, height and the colours of all pixels."""
    at, data, head = 8, b"", b""
    while at < len(png):
        (length,) = struct.unpack(">I", png[at : at + 4])
        kind, body = png[at + 4 : at + 8], png[at + 8 : at + 8 + length]
        head = body if kind == b"IHDR" else head
        data += body if kind == b"IDAT" else b""
        at += length + 12
    width, height, depth, kind_of, _, _, interlaced = struct.unpack(">IIBBBBB", head)
    if depth != 8 or kind_of not in (2, 6) or interlaced:
        raise ValueError("not a PNG of 8-bit RGB or RGBA")
    size = 3 if kind_of == 2 else 4
    raw, stride = zlib.decompress(data), width * size
    before, colours = bytearray(stride), []
    for row in range(height):
        start = row * (stride + 1)
        line = _unfiltered(raw[start], bytearray(raw[start + 1 : start + 1 + stride]), before, size)
        colours += [bytes(line[at : at + 3]) for at in range(0, stride, size)]
        before = line
    return width, height, colours


def _unfiltered(method: int, line: bytearray, above: bytearray, size: int) -> bytearray:
    """A line without its filter (PNG, 9.2)."""
    if method == 2:
        return bytearray((one + up) & 255 for one, up in zip(line, above, strict=True))
    for at in range(len(line)) if method else ():
        left = line[at - size] if at >= size else 0
        up, corner = above[at], above[at - size] if at >= size else 0
        if method == 1:
            guess = left
        elif method == 3:
            guess = (left + up) // 2
        else:
            near = left + up - corner
            choices = ((abs(near - left), 0, left), (abs(near - up), 1, up), (abs(near - corner), 2, corner))
            guess = min(choices)[2]
        line[at] = (line[at] + guess) & 255
    return line


# --- the stage


@contextmanager
def staged(place: Path, out: Path) -> Iterator[Stage]:
    """A control plane with a private operator beside the shared ones, and a browser that is signed in."""
    up = ("up", "--data-dir", str(place / "data"), "--listen", "127.0.0.1:0")
    with contextlib.ExitStack() as stack:
        _, said = stack.enter_context(running(*up, log=place / "up.log", until="mooring: ready."))
        kubeconfig = said.partition("export KUBECONFIG=")[2].split()[0]
        _private(Path(kubeconfig), place, stack)
        link = said.partition("console: ")[2].split()[0]
        driver = browser(place / "profile")
        stack.callback(driver.quit)
        driver.set_window_size(WIDTH, HEIGHT)
        size = {"width": WIDTH, "height": HEIGHT, "deviceScaleFactor": 1, "mobile": False}
        driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        driver.get(link)
        until(driver, lambda: "token" not in driver.current_url, "not signed in")
        yield Stage(driver, link.partition("/?")[0], out)


def _private(kubeconfig: Path, place: Path, stack: contextlib.ExitStack) -> None:
    """An operator of team-a's own, and an instance that it manages."""
    orders = {
        "apiVersion": "redis.kun/v1beta1",
        "kind": "RedisCluster",
        "metadata": {"name": "orders"},
        "spec": {"size": 3, "image": "redis:7.0", "sentinel": {"replicas": 3, "image": "redis:7.0"}},
    }
    words = ("run", "--kubeconfig", str(kubeconfig), "--scope", "namespaced", "--namespaces", "team-a")
    ports = ("--metrics-port", "-1", "--probe-port", "0", "--no-crds")
    where = ("--namespace", "team-a", "--operators", "redis-sentinel")
    asyncio.run(_make(kubeconfig, "/api/v1/namespaces", {"metadata": {"name": "team-a"}}))
    stack.enter_context(running(*words, *ports, *where, log=place / "private.log", until=""))
    asyncio.run(_make(kubeconfig, "/apis/redis.kun/v1beta1/namespaces/team-a/redisclusters", orders))
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    kept = {"metadata": {"name": "kept"}, "spec": claim}
    asyncio.run(_make(kubeconfig, "/api/v1/namespaces/default/persistentvolumeclaims", kept))


async def _make(kubeconfig: Path, path: str, body: dict[str, Any]) -> None:
    """Make one object."""
    client = Client(HttpTransport(Config.from_kubeconfig(kubeconfig)))
    try:
        await client.request("POST", path, body=json.dumps(body).encode())
    finally:
        await client.close()


def main() -> int:
    """Take all pictures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "console")
    options = parser.parse_args()
    fonts = subprocess.run(["fc-list", ":lang=zh", "family"], stdout=subprocess.PIPE, check=True)
    if not fonts.stdout.strip():
        print("screenshots: no font has Chinese letters; install fonts-wqy-microhei", file=sys.stderr)
        return 1
    for place in LANGUAGES.values():
        (options.out / place).mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    with (
        tempfile.TemporaryDirectory(prefix="mooring-pictures-") as top,
        staged(Path(top), options.out) as stage,
    ):
        for step in STEPS:
            step(stage)
    print(f"{len(STEPS)} pages in {time.monotonic() - began:.0f} s", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
