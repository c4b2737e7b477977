"""The task `http`: one HTTP call."""

from __future__ import annotations

from mainspring.kinds.registry import TaskKind

KIND = TaskKind("http", folder=__name__, prepares=True)
