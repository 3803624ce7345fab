"""What ends each wait of this operator; the message of a wait goes on with it."""

from __future__ import annotations

from typing import Final

__all__ = ["ENDINGS", "SELF_EXPLAINING"]

SELF_EXPLAINING: Final = frozenset(
    {
        *("AwaitingRecorded", "DataUnreachable", "ForeignDataSetAside", "PasswordChanging", "PasswordSwitch"),
        *("Paused", "RollBlocked", "RollHalted", "UnrelatedData", "VersionRefused"),
    }
)
"""Reasons whose messages name the remedy themselves."""

_ANSWERS: Final = (
    "it goes on when it answers; kubectl logs and kubectl describe of the pod say why it does not"
)

ENDINGS: Final[dict[str, str]] = {
    "AwaitingMaster": "another server leads if it does not answer within a second",
    "Loading": "it goes on when the data is loaded; the server's log says how far it is",
    "MasterUndecided": "it goes on when a majority of the sentinels names one master or the recorded one answers",
    "MasterUnreachable": "it goes on when it answers or another leads; if its node is gone for good, delete the pod by "
    "force",
    "NoMaster": "it goes on when one of the recorded servers answers",
    "PodsMissing": "it goes on when the pods are made; kubectl describe of the StatefulSet says what keeps them",
    "PodsNotReady": "it goes on when their probes pass; kubectl describe of the pods says why they do not",
    "PodsStarting": "it goes on when they answer; kubectl describe of the pods says why they do not",
    "Promoting": "it goes on when it answers; after three seconds another is chosen",
    "RedisNotAnswering": _ANSWERS,
    "ReplicaSynchronising": "it goes on when the synchronisation ends; the server's log says how far it is",
    "RollWaiting": "the roll goes on when it is; kubectl describe of the pod says why it is not",
    "ScaleInBlocked": "it goes on when one is; status.nodes says what they do",
    "SentinelFailover": "it goes on when they are done, after failover-timeout at the latest",
    "SentinelLeaving": "it goes on when the pod is gone",
    "SentinelNotAnswering": _ANSWERS,
    "SentinelsLearning": "it goes on when they have; sentinels tell one another within seconds",
    "SwitchBlocked": "it goes on when a replica is in sync and the sentinels know it; status.nodes says which are",
    "WaitingForData": "it goes on when they answer; delete their claims if that data may go",
}
"""By reason."""
