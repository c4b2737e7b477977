"""The task `sql`: one statement on a PostgreSQL that the worker has a connection to."""

from __future__ import annotations

from mainspring.kinds.registry import TaskKind

KIND = TaskKind("sql", folder=__name__, requires="mainspring[sql]")
