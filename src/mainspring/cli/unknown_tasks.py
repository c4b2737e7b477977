"""What an empty list of a task's jobs or runs says about the name of the task."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mainspring.sdk.client.client import Client


def nothing_of(client: Client, what: str, task: str) -> str:
    """`no runs of task pakc`, and the task that may be meant."""
    from mainspring.domain.errors import MainspringError
    from mainspring.domain.texts import meant
    from mainspring.kinds.registry import kind_of_task

    text = f"no {what} of task {task}"
    try:
        offered = {one.task for one in client.tasks().tasks}
    except MainspringError:  # a token that may not read them
        return text
    if task in offered or kind_of_task(task) is not None:
        return text
    return f"{text}; {meant(task, offered, 'workers offer those of: mainspring task list')}"
