"""Pauses of jobs, of queues and of everything, for the verbs `pause` and `resume`."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from mainspring.cli.find_id import call_for_job
from mainspring.cli.screen import show_json, show_line
from mainspring.cli.text_formats import TimeFormat

if TYPE_CHECKING:
    from mainspring.sdk.client.client import Client


def pause_job(client: Client, job_id: str, *, as_json: bool) -> None:
    job = call_for_job(client, job_id, client.pause)
    if as_json:
        show_json(job)
    else:
        show_line(f"job {job.job_id} is {job.status}")


def resume_job(client: Client, job_id: str, *, as_json: bool) -> None:
    job = call_for_job(client, job_id, client.resume)
    if as_json:
        show_json(job)
        return
    coming = "" if job.next_fire_at is None else f", next fire {TimeFormat(datetime.now(UTC)).full(job.next_fire_at)}"
    show_line(f"job {job.job_id} is {job.status}{coming}")


def pause_queue(client: Client, queue: str, reason: str | None = None, *, as_json: bool) -> None:
    _show_paused(client.pause_queue(queue, reason=reason), f"queue {queue} is", as_json=as_json)


def resume_queue(client: Client, queue: str, *, as_json: bool) -> None:
    _show_resumed(client.resume_queue(queue), f"queue {queue} is", as_json=as_json)


def pause_everything(client: Client, reason: str | None = None, *, all_tenants: bool, as_json: bool) -> None:
    _show_paused(client.pause_all(all_tenants=all_tenants, reason=reason), _everything(all_tenants), as_json=as_json)


def resume_everything(client: Client, *, all_tenants: bool, as_json: bool) -> None:
    _show_resumed(client.resume_all(all_tenants=all_tenants), _everything(all_tenants), as_json=as_json)


def _everything(all_tenants: bool) -> str:
    return "all tenants are" if all_tenants else "everything is"


def _show_paused(view: Any, what: str, *, as_json: bool) -> None:
    if as_json:
        show_json(view)
    else:
        show_line(f"{what} paused: no run starts, and those that have started continue")


def _show_resumed(view: Any, what: str, *, as_json: bool) -> None:
    if as_json:
        show_json(view)
    else:
        show_line(f"{what} not paused")
