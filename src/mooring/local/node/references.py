"""Names of images, and what is said of one that cannot be had."""

from __future__ import annotations

import re

__all__ = ["ImageError", "normalize"]


_PART = r"[a-z0-9]+(?:(?:\.|__?|-+)[a-z0-9]+)*"
_HOST = r"(?=[^/]*[.:]|localhost/)[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?(?::[0-9]+)?/"
#: As distribution's grammar of references has it; the digest is looked up as it is.
_NAME = re.compile(rf"(?:{_HOST})?{_PART}(?:/{_PART})*(?::[A-Za-z0-9_][A-Za-z0-9_.-]{{0,127}})?", re.ASCII)
_LONGEST = 255


class ImageError(LookupError):
    """The image cannot be had; ``reason`` is ErrImagePull, ErrImageNeverPull or InvalidImageName."""

    def __init__(self, message: str, *, reason: str = "ErrImagePull") -> None:
        super().__init__(message)
        self.reason = reason


def normalize(reference: str) -> str:
    """``docker.io/library/redis@sha256:...`` -> ``redis:latest``; other registries keep their name."""
    name, _, _digest = reference.strip().partition("@")
    head, slash, last = name.rpartition("/")
    repository, _, tag = last.partition(":")
    if len(f"{head}{slash}{repository}") > _LONGEST or _NAME.fullmatch(name) is None:
        raise ImageError(
            f'Failed to apply default image tag "{reference}": invalid reference format',
            reason="InvalidImageName",
        )
    for prefix in ("docker.io/", "index.docker.io/", "library/"):
        head = f"{head}/".removeprefix(prefix).rstrip("/") if head else head
    return f"{head}/{repository}:{tag or 'latest'}".lstrip("/")
