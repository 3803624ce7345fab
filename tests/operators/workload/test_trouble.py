"""Why a pod does not run, from its status as a kubelet writes it: the server's own words, and nothing secret in them."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from mooring.kube.object import decode
from mooring.kube.objects import core
from mooring.operators.workload.last_words import (
    BAD_CONFIGURATION,
    BUCKET_MISSING,
    OUT_OF_MEMORY,
    STORAGE_REFUSED,
    last_words,
)
from mooring.operators.workload.pods import Pod, pod_of
from mooring.runtime import secrets

BACK_OFF = "back-off 40s restarting failed container=main pod=mo-log-0_default(7b0c)"
STACK = (
    "\ngoroutine 1 [running]:\n"
    "main.startLogService(0xc000f0a000, 0xc0005a8000, 0xc0000b2150)\n"
    "\t/go/src/github.com/matrixorigin/matrixone/cmd/mo-service/main.go:290 +0x3c5\n"
    "main.main()\n"
    "\t/go/src/github.com/matrixorigin/matrixone/cmd/mo-service/main.go:121 +0x32a\n"
)
HEAD = "bad s3 config: operation error S3: HeadBucket, https response error StatusCode: 403"
SIGNATURE = (
    "SignatureDoesNotMatch: The request signature we calculated does not match the signature you provided"
)
REMEDIES = {
    "CrashLoopBackOff": "check config",
    STORAGE_REFUSED: "check secretRef",
    BUCKET_MISSING: "create the bucket",
    BAD_CONFIGURATION: "correct config",
    OUT_OF_MEMORY: "raise the limit",
}


def ended(message: str, *, code: int = 2, reason: str = "Error") -> dict[str, Any]:
    return {
        "terminated": {
            "exitCode": code,
            "reason": reason,
            "message": message,
            "containerID": "containerd://5e",
        }
    }


def quoted(message: str, **how: Any) -> str:
    """The kind of the line that is quoted, and the line."""
    state = msgspec.convert(ended(message, **how), core.ContainerState)
    found = last_words(state.terminated)
    return f"{found.kind}|{found.line}" if found is not None else ""


def looping(message: str, **how: Any) -> Pod:
    """A pod whose only container keeps ending."""
    container = {
        "name": "main",
        "restartCount": 4,
        "state": {"waiting": {"reason": "CrashLoopBackOff", "message": BACK_OFF}},
        "lastState": ended(message, **how),
    }
    spec = {"containers": [{"name": "main"}]}
    raw = {"metadata": {"name": "mo-log-0"}, "spec": spec, "status": {"containerStatuses": [container]}}
    return pod_of(decode(raw, core.Pod), component="main", claims={}, born=None, remedies=REMEDIES)


def said(*lines: str) -> str:
    return "\n".join(lines) + "\n"


SAID = {
    "a wrong secret": (
        said(
            "2026/11/29 14:00:00.123456 +0000 INFO fileservice/aws_sdk_v2.go:123 new object storage",
            f"panic: internal error: {HEAD}, RequestID: 17F2A, HostID: ab/c=, api error {SIGNATURE}.",
            STACK,
        ),
        f"StorageRefused|panic: internal error: {HEAD}, api error {SIGNATURE}.",
    ),
    "a wrong key, by another client of S3": (
        said("panic: The Access Key Id you provided does not exist in our records.", STACK),
        "StorageRefused|panic: The Access Key Id you provided does not exist in our records.",
    ),
    "a key that may do nothing": (
        said("panic: Access Denied.", STACK),
        "StorageRefused|panic: Access Denied.",
    ),
    "no such bucket": (
        said("panic: internal error: bad s3 config, no such bucket or no permissions: data", STACK),
        "BucketMissing|panic: internal error: bad s3 config, no such bucket or no permissions: data",
    ),
    "a file that is no TOML, in a directory that each start makes": (
        said(
            "panic: failed to parse config from /tmp/tmp.5FrKq8/config, error: toml: line 7: expected '.', but got 'x'",
            STACK,
        ),
        "BadConfiguration|panic: failed to parse config from config, error: toml: line 7: expected '.', but got 'x'",
    ),
    "an error before the panic": (
        said(
            "2026/11/29 14:00:00.1 +0000 ERROR task store not ready",
            "panic: invalid commitTo index 6594, lastIndex() 3",
            STACK,
        ),
        "|panic: invalid commitTo index 6594, lastIndex() 3",
    ),
    "Redis": (
        said(
            "",
            "*** FATAL CONFIG FILE ERROR (Redis 7.0.15) ***",
            "Reading the configuration file, at line 12",
            ">>> 'maxmemory-policy some-value'",
            "argument(s) must be one of the following: volatile-lru, noeviction",
        ),
        "BadConfiguration|maxmemory-policy: argument(s) must be one of the following: volatile-lru, noeviction",
    ),
    "Redis, its files": (
        said(
            "1:M 29 Nov 2026 14:00:00.000 * Reading RDB base file on AOF loading...",
            "1:M 29 Nov 2026 14:00:00.001 # Can't handle RDB format version 12",
            "1:M 29 Nov 2026 14:00:00.002 # Fatal error loading the DB, check server logs. Exiting.",
        ),
        "|Can't handle RDB format version 12",
    ),
    "MariaDB": (
        said(
            "2026-11-29 14:00:00 0 [Note] Starting MariaDB",
            "2026-11-29 14:00:00 0 [ERROR] mariadbd: unknown variable 'foo=bar'",
            "2026-11-29 14:00:00 0 [ERROR] Aborting",
        ),
        "BadConfiguration|[ERROR] mariadbd: unknown variable 'foo=bar'",
    ),
    "MySQL": (
        said(
            "2026-11-29T14:00:00.1Z 1 [ERROR] [MY-012574] [InnoDB] Unable to lock ./ibdata1 error: 11",
            "2026-11-29T14:00:09.1Z 1 [ERROR] [MY-010334] [Server] Failed to initialize DD Storage Engine",
            "2026-11-29T14:00:09.2Z 0 [ERROR] [MY-010119] [Server] Aborting",
        ),
        "|[ERROR] [MY-012574] [InnoDB] Unable to lock ./ibdata1 error: 11",
    ),
    "a script": (
        said("starting", "mo-log-0.mo-log-headless.default.svc has no address after 30 s"),
        "|mo-log-0.mo-log-headless.default.svc has no address after 30 s",
    ),
    "nothing that tells": (said("listening", "ready"), ""),
    "a stack whose head is cut off": (STACK[30:], ""),
    "nothing": ("", ""),
}


@pytest.mark.parametrize(("message", "line"), SAID.values(), ids=SAID)
def test_the_line_that_tells_is_quoted(message: str, line: str) -> None:
    assert quoted(message) == line


def test_a_container_that_succeeded_has_no_last_words() -> None:
    assert quoted("panic: not really", code=0) == ""


def test_what_differs_with_each_start_is_left_out() -> None:
    """A status that says the same is not written again."""

    def start(number: int) -> str:
        return (
            f"2026/11/29 14:0{number}:00.12 +0000 FATAL operation error S3: HeadBucket, StatusCode: 403, RequestID: 9{number}, "
            f"HostID: h{number}, api error Forbidden: Forbidden, in /tmp/tmp.aB{number}/config"
        )

    assert quoted(start(1)) == quoted(start(2))
    assert quoted(start(1)).startswith("StorageRefused|FATAL operation error S3")


SECRET = "hunter2hunter2"
"""What must not be shown."""


@pytest.mark.parametrize(
    "text",
    [
        f"access_key_id={SECRET}",
        f"AccessKeyId: {SECRET}",
        f"<AWSAccessKeyId>{SECRET}</AWSAccessKeyId>",
        f"AWS_SECRET_ACCESS_KEY={SECRET}",
        f'"key-id": "{SECRET}"',
        f"key-secret = '{SECRET}'",
        f"secret_access_key: {SECRET}",
        f"requirepass {SECRET}'",
        f"--password={SECRET}",
        f"https://someone:{SECRET}@store/bucket",
        f"GET /b?X-Amz-Credential={SECRET}&X-Amz-Signature={SECRET}&x=1",
        f"session token: {SECRET}",
        f"known to this process: {SECRET}-known",
    ],
)
def test_no_credential_is_quoted(text: str) -> None:
    secrets.add(f"{SECRET}-known")
    found = quoted(f"panic: it failed with {text}\n{STACK}")
    assert "panic: it failed" in found
    assert SECRET not in found


def test_an_access_key_is_known_by_its_form() -> None:
    assert "AKIA" not in quoted("panic: the key AKIAIOSFODNN7EXAMPLE is disabled")


def test_a_line_whose_beginning_the_kubelet_cut_off_is_not_quoted() -> None:
    """It keeps 2048 bytes; the name of a value, by which it is masked, may be in what is gone."""
    rest = f"{SECRET}' cannot be used\n"
    assert SECRET in quoted(rest)
    assert SECRET not in quoted(rest + "x" * 2048)


def test_a_long_line_is_cut() -> None:
    line = quoted("panic: " + "no " * 400)
    assert line.endswith("...")
    assert len(line) <= 1 + 240


def test_a_server_that_keeps_ending_is_quoted_with_what_helps() -> None:
    pod = looping(f"panic: internal error: {SIGNATURE}.\n{STACK}")
    assert pod.trouble == "CrashLoopBackOff"
    assert (
        pod.trouble_message
        == f'the server keeps ending: "panic: internal error: {SIGNATURE}."; check secretRef'
    )
    assert (
        looping("panic: out of luck").trouble_message
        == 'the server keeps ending: "panic: out of luck"; check config'
    )


def test_memory_is_named_rather_than_what_was_said_last() -> None:
    pod = looping("panic: unrelated", code=137, reason="OOMKilled")
    words = "killed: it needed more memory than its limit"
    assert pod.trouble_message == f'the server keeps ending: "{words}"; raise the limit'


def test_a_server_of_which_no_word_is_kept_is_told_of_as_kubernetes_does() -> None:
    """Pods that were made before their containers kept the end of the log."""
    assert looping("").trouble_message == f"{BACK_OFF}; its log says why; check config"


def made(*containers: dict[str, Any], init: tuple[dict[str, Any], ...] = ()) -> Pod:
    status = {"containerStatuses": list(containers), "initContainerStatuses": list(init)}
    raw = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "main"}]}, "status": status}
    return pod_of(decode(raw, core.Pod), component="main", claims={}, born=None, remedies=REMEDIES)


def test_a_server_that_has_just_ended_is_quoted_too() -> None:
    pod = made({"name": "main", "state": ended("panic: Access Denied.")})
    text = 'the container ended with status 2: "panic: Access Denied."; check secretRef'
    assert (pod.trouble, pod.trouble_message) == ("Error", text)


def test_containers_before_and_beside_the_server_are_quoted_by_name() -> None:
    loop = {
        "state": {"waiting": {"reason": "CrashLoopBackOff", "message": BACK_OFF}},
        "lastState": ended("sh: can't open /x: not found"),
    }
    first = made(init=({"name": "start-gate", **loop},))
    assert (
        first.trouble_message
        == 'container start-gate keeps ending: "sh: can\'t open /x: not found"; check config'
    )
    beside = made({"name": "main", "state": {"running": {}}}, {"name": "udf", **loop})
    assert beside.trouble_message == 'container udf: it keeps ending: "sh: can\'t open /x: not found"'
