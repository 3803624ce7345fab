"""What ends each wait of this operator; the message of a wait goes on with it."""

from __future__ import annotations

from typing import Final

__all__ = ["ENDINGS", "SELF_EXPLAINING"]

SELF_EXPLAINING: Final = frozenset(
    {
        *(
            "AwaitingRecorded",
            "DataUnreachable",
            "ForeignDataSetAside",
            "PasswordChanging",
            "PasswordRefused",
        ),
        *(
            "PasswordSwitch",
            "Paused",
            "PortClosed",
            "RollBlocked",
            "RollHalted",
            "UnrelatedData",
            "VersionRefused",
        ),
    }
)
"""Reasons whose messages name the remedy themselves."""

_ANSWERS: Final = (
    "the operator continues when it answers; kubectl logs and kubectl describe of the pod say why it does not"
)

ENDINGS: Final[dict[str, str]] = {
    "AwaitingMaster": "another server leads if it does not answer within a second",
    "Loading": "the operator continues when the data is loaded; the server's log says how far it is",
    "MasterUndecided": "the operator continues when a majority of the sentinels names one master or the recorded one answers",
    "MasterUnreachable": "the operator continues when it answers or another leads; if its node is gone for good, delete the pod by "
    "force",
    "NoMaster": "the operator continues when one of the recorded servers answers",
    "PodsMissing": "the operator continues when they exist; kubectl describe of the StatefulSet says why they do not",
    "PodsNotReady": "the operator continues when their probes pass; kubectl describe of the pods says why they do not",
    "PodsStarting": "the operator continues when they answer; kubectl describe of the pods says why they do not",
    "Promoting": "the operator continues when it answers; after three seconds another is chosen",
    "RedisNotAnswering": _ANSWERS,
    "ReplicaSynchronising": "the operator continues when the synchronisation ends; the server's log says how far it is",
    "RollWaiting": "the roll-out continues when it is; kubectl describe of the pod says why it is not",
    "ScaleInBlocked": "the operator continues when one is; status.nodes says what they do",
    "SentinelFailover": "the operator continues when they are done, after failover-timeout at the latest",
    "SentinelLeaving": "the operator continues when the pod is gone",
    "SentinelNotAnswering": _ANSWERS,
    "SentinelsLearning": "the operator continues when they have; sentinels tell one another within seconds",
    "SwitchBlocked": "the operator continues when a replica is in sync and the sentinels know it; status.nodes says which are",
    "WaitingForData": "the operator continues when they answer; delete their claims if that data may go",
}
"""By reason."""
