"""Pauses of queues and of everything, for `mainspring pause` and `mainspring resume`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainspring.cli.screen import show_json, show_line

if TYPE_CHECKING:
    from mainspring.sdk.client.client import Client


def change_pause(
    client: Client,
    verb: str,
    job_id: str | None,
    queue: str | None,
    *,
    everything: bool,
    all_tenants: bool,
    as_json: bool,
) -> None:
    """`verb` is pause or resume."""
    from mainspring.domain.errors import InvalidInput

    if [job_id is not None, queue is not None, everything or all_tenants].count(True) != 1:
        raise InvalidInput(
            "name a job, or give --queue or --all, and only one of them",
            hint=f"such as: mainspring {verb} --queue mails",
        )
    if queue is not None:
        view = client.pause_queue(queue) if verb == "pause" else client.resume_queue(queue)
    else:
        change = client.pause_all if verb == "pause" else client.resume_all
        view = change(all_tenants=all_tenants)
    if as_json:
        show_json(view)
        return
    what = f"queue {queue}" if queue is not None else "all tenants" if all_tenants else "everything"
    is_ = "are" if all_tenants else "is"
    if verb == "pause":
        show_line(f"{what} {is_} paused: no run starts, and those that have started continue")
    else:
        show_line(f"{what} {is_} not paused any more")
