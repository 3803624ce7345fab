"""PersistentVolumes and their claims: binding, directories made on demand, growth, reclaiming, protection."""

from mooring.local.controllers.volumes.claims import ClaimController
from mooring.local.controllers.volumes.directories import Directories
from mooring.local.controllers.volumes.protection import ClaimProtection, VolumeProtection
from mooring.local.controllers.volumes.provisioner import Provisioner, Reclaimer
from mooring.local.controllers.volumes.resizer import Resizer
from mooring.local.controllers.volumes.volumes import VolumeController

__all__ = [
    "ClaimController",
    "ClaimProtection",
    "Directories",
    "Provisioner",
    "Reclaimer",
    "Resizer",
    "VolumeController",
    "VolumeProtection",
]
