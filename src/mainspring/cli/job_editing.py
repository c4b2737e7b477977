"""Changes of a job: by options, or as JSON in an editor."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import typer

from mainspring.cli.find_id import call_for_job
from mainspring.cli.screen import say
from mainspring.kinds.registry import task_kinds

if TYPE_CHECKING:
    from mainspring.sdk.client.client import Client
    from mainspring.wire.jobs import JobView

_RULES = ("cron", "every", "rrule")
_MEMBERS = ("exdates", "jitter", "start", "end", "max_runs", "dst", "calendar", "outside", "timezone")


def changed_job(client: Client, job_id: str, changes: dict[str, Any]) -> JobView:
    """Change the job. A schedule with another rule replaces the old one, so it names all that the old one has."""
    rule = next((name for name in _RULES if changes.get(name) is not None), None)
    if rule is None or sum(changes.get(name) is not None for name in _RULES) > 1:
        return client.update_job(job_id, **changes)
    job = client.job(job_id)
    before = _schedule(job)
    if not isinstance(before, dict) or "at" in before:
        return client.update_job(job_id, **changes)
    schedule = {name: value for name, value in before.items() if name not in _RULES}
    if rule != "rrule":
        schedule.pop("exdates", None)
    if rule == "every":
        schedule.pop("dst", None)
    given = {name: changes[name] for name in (*_RULES, *_MEMBERS) if name in changes}
    schedule = {name: value for name, value in (schedule | given).items() if value is not None}
    if rule == "every" and "calendar" not in schedule and given.get("timezone") is None:
        schedule.pop("timezone", None)  # it has no effect
    if "calendar" not in schedule and "outside" not in given:
        schedule.pop("outside", None)
    others = {name: value for name, value in changes.items() if name not in given}
    return client.update_job(job_id, if_version=job.version, schedule=schedule, **others)


def edited_job(client: Client, job_id: str) -> JobView | None:
    """Let the user edit the job until the server takes it. None if nothing is changed."""
    from mainspring.cli.editor import changed_fields, edit_text, keep_text
    from mainspring.domain.errors import InvalidInput, MainspringError, VersionMismatch

    job = call_for_job(client, job_id, client.job)
    text = before = editable_text(job)
    name = f"{job.job_id.replace('/', '_')}.json"
    while True:
        text = edit_text(text, name)
        try:
            changes = changed_fields(before, text)
            # With the version: a change that another client made meanwhile is not overwritten.
            return client.update_job(job.job_id, if_version=job.version, **changes) if changes else None
        except MainspringError as error:
            if isinstance(error, InvalidInput) and sys.stdin.isatty():
                say(f"error: {error}")
                if typer.confirm("Edit it again?", default=True, err=True):
                    continue
                say(f"your text is in {keep_text(text, name)}")
                return None
            kept = f"your text is in {keep_text(text, name)}"
            if isinstance(error, VersionMismatch):
                error.detail = f"{error.detail}: somebody else has changed it meanwhile; nothing was changed"
                error.hint = f"{kept}; open the job again with `mainspring job edit {job.job_id}`"
            else:
                error.hint = kept if error.hint is None else f"{error.hint}; {kept}"
            raise


def editable_text(job: JobView) -> str:
    """What can be changed of the job, in the form of a request."""
    import msgspec

    from mainspring.wire.fields import Place, fields_in

    shown = msgspec.to_builtins(job)
    fields = {
        field.name: shown[field.name]
        for field in fields_in(Place.PATCH)
        if field.means is None and field.name in shown and field.name not in ("schedule", "retry")
    }
    if any(shown.get(kind.field) is not None for kind in task_kinds()):
        del fields["task"]
    fields = {name: value for name, value in fields.items() if value not in (None, {}, [])}
    fields["retry"] = {name: value for name, value in shown["retry"].items() if value not in (None, [])}
    if job.schedule_type != "EVENT":  # --event and --if change it
        fields["schedule"] = _schedule(job)
    return msgspec.json.format(msgspec.json.encode(fields), indent=2).decode() + "\n"


def _schedule(job: JobView) -> Any:
    from mainspring.domain.durations import format_duration
    from mainspring.domain.run_key import rfc3339

    members = {
        "jitter": None if job.jitter is None else format_duration(job.jitter),
        "start": None if job.start is None else rfc3339(job.start),
        "end": None if job.end is None else rfc3339(job.end),
        "max_runs": job.max_runs,
        "exdates": [rfc3339(one) for one in job.exdates] or None,
        "dst": job.dst,
        "calendar": job.calendar,
        "outside": None if job.calendar is None else job.outside,
        "timezone": job.timezone,
    }
    given = {name: value for name, value in members.items() if value is not None}
    if job.cron_expression is not None:
        return {"cron": job.cron_expression, **given}
    if job.rrule is not None:
        return {"rrule": job.rrule, **given}
    if job.every is not None:
        return {"every": format_duration(job.every), **given}
    if job.schedule_time is not None:
        return {"at": rfc3339(job.schedule_time)}
    return "manual"
