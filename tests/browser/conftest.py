"""One control plane with its console, and one Chromium, for all tests of the page."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import WebDriverWait

from mooring.kube import Client, Config, HttpTransport, NotFound

__all__ = ["Page", "Plane", "free_port", "narrow", "stubbed"]

ROOT = Path(__file__).resolve().parents[2]
WEB = ROOT / "web"
#: Seconds until the page shows what was clicked, until the plane is ready.
SOON, READY = 10.0, 60.0
REDIS = "/apis/redis.kun/v1beta1/namespaces/{}/redisclusters"
CORE = "/api/v1/namespaces/default"
RBAC = "/apis/rbac.authorization.k8s.io/v1/namespaces/default"


@contextmanager
def running(*words: str, log: Path, until: str) -> Iterator[str]:
    """A command of Mooring, once it has printed ``until``; gives what it printed."""
    with log.open("wb") as out:
        command = [sys.executable, "-m", "mooring", *words]
        process = subprocess.Popen(command, cwd=ROOT, stdout=out, stderr=out, start_new_session=True)
    try:
        deadline = time.monotonic() + READY
        while until not in log.read_text():
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.05)
        yield log.read_text()
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


def free_port() -> int:
    """A port of loopback that nobody listens on now."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


class Plane:
    """A running `mooring up`: the link of its console, and writes to its API server."""

    def __init__(self, link: str, kubeconfig: Path) -> None:
        self.link = link
        self.kubeconfig = kubeconfig

    def send(self, method: str, path: str, body: Any = None) -> Any:
        """One request with the administrator's credential."""

        return self.send_all(method, [path], [body])[0]

    def send_all(self, method: str, paths: Sequence[str], bodies: Sequence[Any] = ()) -> list[Any]:
        """Several requests at once."""

        async def every() -> list[Any]:
            client = Client(HttpTransport(Config.from_kubeconfig(self.kubeconfig)))
            kind = "application/merge-patch+json" if method == "PATCH" else "application/json"

            async def once(path: str, body: Any) -> Any:
                data = None if body is None else json.dumps(body).encode()
                return json.loads((await client.request(method, path, body=data, content_type=kind)).body)

            try:
                return await asyncio.gather(*map(once, paths, bodies or [None] * len(paths)))
            finally:
                await client.close()

        return asyncio.run(every())

    def redis(self, name: str, *, paused: bool = True, **spec: Any) -> str:
        """Make a RedisCluster, which its operator leaves alone while ``paused``; gives its path."""
        return self.redis_many([name], paused=paused, **spec)[0]

    def delete(self, path: str, *, within: float = READY) -> None:
        """Delete an object and wait until it is gone: a definition goes after its objects."""
        self.send("DELETE", path)
        deadline = time.monotonic() + within
        while self.served(path):
            assert time.monotonic() < deadline, f"{path} does not go"
            time.sleep(0.05)

    def served(self, path: str) -> bool:
        """Whether there is something at a path, to list or to get."""
        try:
            self.send("GET", path)
        except NotFound:
            return False
        return True

    def pod(self, name: str, *, owner: str) -> None:
        """Make a running pod that belongs to the instance at a path."""
        found = self.send("GET", owner)
        keys = {"apiVersion": found["apiVersion"], "kind": found["kind"], "name": found["metadata"]["name"]}
        metadata = {"name": name, "ownerReferences": [{**keys, "uid": found["metadata"]["uid"]}]}
        container = {"name": "redis", "image": "redis:7.0", "command": ["redis-server", "--save", ""]}
        body = {"metadata": metadata, "spec": {"containers": [container], "terminationGracePeriodSeconds": 0}}
        self.send("POST", f"{CORE}/pods", body)

    def redis_many(self, names: Sequence[str], *, paused: bool = True, **spec: Any) -> list[str]:
        """Make several at once; gives their paths."""
        place = REDIS.format("default")
        bodies = [
            {
                "apiVersion": "redis.kun/v1beta1",
                "kind": "RedisCluster",
                "metadata": {"name": name, "annotations": {"mooring.dev/pause": str(paused).lower()}},
                "spec": spec,
            }
            for name in names
        ]
        self.send_all("POST", [place] * len(names), bodies)
        return [f"{place}/{name}" for name in names]


@pytest.fixture(scope="session")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plane]:
    """A running `mooring up`."""
    place = tmp_path_factory.mktemp("up")
    words = ("up", "--data-dir", str(place / "data"), "--listen", "127.0.0.1:0")
    with running(*words, log=place / "log", until="mooring: ready.") as said:
        link = re.findall(r"^console: (http://\S+)$", said, re.MULTILINE)[0]
        kubeconfig = re.findall(r"export KUBECONFIG=(\S+)", said)[0]
        yield Plane(link, Path(kubeconfig))


@pytest.fixture(scope="session")
def console(plane: Plane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The link of a second console of the plane, as `mooring console` serves it."""
    place = tmp_path_factory.mktemp("console")
    words = ("console", "--kubeconfig", str(plane.kubeconfig))
    with running(*words, log=place / "log", until="Ctrl-C ends") as said:
        yield re.findall(r"^console: (http://\S+)$", said, re.MULTILINE)[0]


@pytest.fixture(scope="session")
def signed_in(page: Page, console: str) -> Page:
    """The browser with a session of the second console."""
    page.driver.get(console)
    page.find("user")
    page.address = console.partition("?")[0]
    return page


@pytest.fixture
def reader(signed_in: Page, plane: Plane) -> Iterator[Page]:
    """The browser signed in by the token of an account that may read RedisClusters of one namespace."""
    page = signed_in
    plane.send("POST", f"{CORE}/serviceaccounts", {"metadata": {"name": "reader"}})
    rules = [{"apiGroups": ["redis.kun"], "resources": ["redisclusters"], "verbs": ["get", "list", "watch"]}]
    plane.send("POST", f"{RBAC}/roles", {"metadata": {"name": "reader"}, "rules": rules})
    binding = {
        "metadata": {"name": "reader"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reader"},
        "subjects": [{"kind": "ServiceAccount", "name": "reader", "namespace": "default"}],
    }
    plane.send("POST", f"{RBAC}/rolebindings", binding)
    made = plane.send("POST", f"{CORE}/serviceaccounts/reader/token", {"spec": {}})
    cookies = page.driver.get_cookies()
    page.driver.delete_all_cookies()
    page.driver.get(page.address)
    page.until(lambda: page.driver.find_elements(By.ID, "token"))
    page.driver.find_element(By.ID, "token").send_keys(made["status"]["token"])
    page.press("Sign in")
    page.until(lambda: "reader" in page.text("user"))
    try:
        yield page
    finally:
        page.driver.delete_all_cookies()
        for cookie in cookies:
            page.driver.add_cookie(cookie)
        page.driver.get(page.address)
        page.until(lambda: "admin" in page.text("user"))
        for path in (f"{RBAC}/rolebindings", f"{RBAC}/roles", f"{CORE}/serviceaccounts"):
            plane.send("DELETE", f"{path}/reader")


@pytest.fixture(scope="session")
def axe() -> str:
    """The source of axe-core, which finds what keeps people from using a page."""
    source = WEB / "node_modules" / "axe-core" / "axe.min.js"
    if not source.exists():
        npm = shutil.which("npm")
        assert npm, "the browser tests need npm for axe-core"
        quiet = ["--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error"]
        subprocess.run([npm, "ci", *quiet], cwd=WEB, check=True)
    return source.read_text()


@pytest.fixture(scope="session")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    """A browser that speaks English."""
    options = webdriver.ChromeOptions()
    options.binary_location = "/usr/bin/chromium"
    profile = tmp_path_factory.mktemp("profile")
    sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []
    quiet = ["--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--disable-background-networking"]
    for word in ("--headless=new", "--lang=en", f"--user-data-dir={profile}", *quiet, *sandbox):
        options.add_argument(word)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    # The driver is given, so that nothing is looked for, or downloaded.
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService("/usr/bin/chromedriver"))
    try:
        yield Page(driver)
    finally:
        driver.quit()


STUB = """
window.plainFetch ??= window.fetch;
const [part, status, body] = arguments;
window.fetch = (url, init) => !String(url).split('?')[0].endsWith(part) ? window.plainFetch(url, init) : Promise.resolve(
  new Response(JSON.stringify(body), {status}));
"""


@contextmanager
def stubbed(page: Page, part: str, body: Any, *, status: int = 200) -> Iterator[None]:
    """The page, for whose requests to a path with this end the console answers so."""
    page.driver.execute_script(STUB, part, status, body)
    try:
        yield
    finally:
        page.driver.execute_script("window.fetch = window.plainFetch")


def narrow(page: Page) -> int:
    """How wide the page is on a telephone, where 390 pixels are there."""
    size = {"width": 390, "height": 800, "deviceScaleFactor": 1, "mobile": True}
    page.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    try:
        return int(page.driver.execute_script("return document.documentElement.scrollWidth"))
    finally:
        page.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


class Page:
    """What a user does and sees."""

    def __init__(self, driver: webdriver.Chrome) -> None:
        self.driver = driver
        self.address = ""

    def open(self, route: str) -> None:
        """Go to a page of the console."""
        self.driver.get(f"{self.address}#/{route}")

    def reopen(self, route: str) -> None:
        """Leave a page and come back to it, without loading anything again."""
        self.driver.execute_script("window.location.hash = '#/nowhere'")
        self.until(lambda: self.shows("Catalog"))
        self.driver.execute_script("window.location.hash = '#/' + arguments[0]", route)

    def field(self, name: str) -> WebElement:
        """The input of a field of a form."""
        found: list[WebElement] = []

        def look() -> bool:
            found[:] = self.driver.find_elements(By.ID, f"field-{name}")
            return bool(found)

        self.until(look)
        return found[0]

    def type(self, name: str, text: str) -> None:
        """Write into a field in place of what is there."""
        self.field(name).send_keys(Keys.CONTROL, "a")
        self.field(name).send_keys(text)

    def paste(self, name: str, text: str) -> None:
        """Put a long text into a field at once, as from the clipboard."""
        script = "arguments[0].select(); document.execCommand('insertText', false, arguments[1])"
        self.driver.execute_script(f"arguments[0].focus(); {script}", self.field(name), text)

    def text(self, test_id: str) -> str:
        """The text of a part of the page, "" if it is not there."""
        script = "return document.querySelector(`[data-testid=${arguments[0]}]`)?.innerText ?? ''"
        return str(self.driver.execute_script(script, test_id))

    def axe(self, source: str) -> list[str]:
        """What axe-core calls serious or critical on the page as it is."""
        self.driver.execute_script(source)
        script = (
            "const done = arguments[0]; axe.run({resultTypes: ['violations']}).then(r => done(r.violations))"
        )
        found = self.driver.execute_async_script(script)
        return [
            f"{one['id']}: {one['help']}: {[node['target'] for node in one['nodes']][:3]}"
            for one in found
            if one["impact"] in ("serious", "critical")
        ]

    def until(self, condition: Callable[[], object], seconds: float = SOON) -> None:
        WebDriverWait(self.driver, seconds, poll_frequency=0.05).until(
            lambda _: condition(), message=f"not in time at {self.driver.current_url.partition('?')[0]}"
        )

    def find(self, test_id: str) -> WebElement:
        found: list[WebElement] = []

        def look() -> bool:
            found[:] = self.driver.find_elements(By.CSS_SELECTOR, f'[data-testid="{test_id}"]')
            return bool(found)

        self.until(look)
        return found[0]

    def there(self, test_id: str) -> bool:
        return bool(self.driver.find_elements(By.CSS_SELECTOR, f'[data-testid="{test_id}"]'))

    def shows(self, text: str) -> bool:
        return text in str(self.driver.execute_script("return document.body.innerText"))

    def phase(self) -> str:
        script = "return document.querySelector('[data-testid=phase]')?.dataset.phase ?? ''"
        return str(self.driver.execute_script(script))

    def press(self, text: str) -> None:
        self.driver.find_element(By.XPATH, f"//button[normalize-space()={text!r}]").click()

    def complaints(self) -> list[str]:
        """What the browser's console says, such as what the content security policy blocked.

        That the server refused something, as it should here, is not among it.
        """
        entries = self.driver.get_log("browser")  # type: ignore[no-untyped-call]
        return [
            entry["message"] for entry in entries if "responded with a status of 4" not in entry["message"]
        ]
