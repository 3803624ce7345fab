"""A console that runs as a user would start it, and a Chromium to look at it: for benchmarks and for pictures."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from selenium import webdriver
from selenium.webdriver.support.ui import WebDriverWait

__all__ = ["SECONDS", "browser", "running", "until"]

ROOT: Final = Path(__file__).resolve().parents[1]
#: Seconds until a command is ready, until something is seen.
SECONDS: Final = 60.0


@contextmanager
def running(*words: str, log: Path, until: str) -> Iterator[tuple[int, str]]:
    """A command of Mooring once it has printed ``until``: its process and what it printed."""
    with log.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "mooring", *words], cwd=ROOT, stdout=out, stderr=out
        )
    try:
        deadline = time.monotonic() + SECONDS
        while until not in log.read_text():
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"not ready: {log.read_text()[-2000:]}")
            time.sleep(0.02)
        yield process.pid, log.read_text()
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        process.wait(60)


def browser(profile: Path, *options: str) -> webdriver.Chrome:
    """A Chromium without a window; the driver is given, so that nothing is downloaded."""
    chosen = webdriver.ChromeOptions()
    chosen.binary_location = "/usr/bin/chromium"
    sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []
    words = ("--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--disable-background-networking")
    for word in ("--headless=new", "--lang=en", f"--user-data-dir={profile}", *options, *words, *sandbox):
        chosen.add_argument(word)
    return webdriver.Chrome(options=chosen, service=webdriver.ChromeService("/usr/bin/chromedriver"))


def until(driver: webdriver.Chrome, found: Callable[[], Any], what: str) -> Any:
    """What ``found`` gives once it is something."""
    return WebDriverWait(driver, SECONDS, poll_frequency=0.02).until(lambda _: found(), message=what)
