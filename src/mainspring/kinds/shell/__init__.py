"""The task `shell`: commands, plain or in a sandbox."""

from __future__ import annotations

from mainspring.kinds.registry import TaskKind

KIND = TaskKind(
    "shell", folder=__name__, field="command", stored="spec.command", in_sql=True, keyword="str | Sequence[str]"
)
