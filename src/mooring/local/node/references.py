"""Names of images, and what is said of one that cannot be had."""

from __future__ import annotations

import re

__all__ = ["ImageError", "normalize"]


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
    if not repository or re.search(r"[^a-z0-9._/:-]", f"{head}{slash}{repository}".lower()):
        raise ImageError(
            f'Failed to apply default image tag "{reference}": invalid reference format',
            reason="InvalidImageName",
        )
    for prefix in ("docker.io/", "index.docker.io/", "library/"):
        head = f"{head}/".removeprefix(prefix).rstrip("/") if head else head
    return f"{head}/{repository}:{tag or 'latest'}".lstrip("/")
