"""Deployments: ReplicaSets exchanged for newer ones, as fast as availability allows."""

from mooring.local.controllers.deployment.controller import DeploymentController

__all__ = ["DeploymentController"]
