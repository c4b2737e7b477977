"""The cluster of tests/processes."""

from __future__ import annotations

from tests.processes.conftest import cluster as cluster
