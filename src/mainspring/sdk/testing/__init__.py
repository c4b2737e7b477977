"""Test an application in the process of the test, on a clock that the test controls, or at a real server."""

from mainspring.sdk.testing.attempt import WorkerLost
from mainspring.sdk.testing.box import Box, run
from mainspring.sdk.testing.records import BoxRun

__all__ = ["Box", "BoxRun", "WorkerLost", "run"]
