"""Test an application without a server: it runs in the test's own process, on a clock that the test moves."""

from mainspring.sdk.testing.box import Box, run
from mainspring.sdk.testing.records import BoxRun

__all__ = ["Box", "BoxRun", "run"]
