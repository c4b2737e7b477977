"""Test an application without a server. It runs in the process of the test, on a clock that the test controls."""

from mainspring.sdk.testing.attempt import WorkerLost
from mainspring.sdk.testing.box import Box, run
from mainspring.sdk.testing.records import BoxRun

__all__ = ["Box", "BoxRun", "WorkerLost", "run"]
