"""Calls for previews, calendars and backfills."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Unpack

from mainspring.sdk.client.calls.common import job_path, match_header, query_of, text_of, verb
from mainspring.sdk.client.core import Call, encode, json_of, segment
from mainspring.sdk.client.job_fields import PreviewFields, When, job_request
from mainspring.wire.backfills import BackfillList, BackfillView
from mainspring.wire.calendars import CalendarList, CalendarPreview, CalendarView
from mainspring.wire.preview import HeatMap, RangeWord, ScheduleExplanation, SchedulePreview, UpcomingFires

_heat_map = json_of(HeatMap)
_upcoming_fires = json_of(UpcomingFires)
_preview = json_of(SchedulePreview)
_explanation = json_of(ScheduleExplanation)
_backfill = json_of(BackfillView)
_backfill_list = json_of(BackfillList)
_calendar_list = json_of(CalendarList)
_calendar = json_of(CalendarView)
_calendar_preview = json_of(CalendarPreview)


def preview(
    *, n: int = 10, from_: When | None = None, job_id: str | None = None, **when: Unpack[PreviewFields]
) -> Call[SchedulePreview]:
    """What a schedule does: in words, its next `n` fires from `from_` on (by default from now on), and notes. It is
    given as in `submit`, and nothing is stored. `job_id` chooses the job for which `H` and jitter are worked out."""
    body = job_request({**when, "job_id": job_id, "n": n, "from": from_})
    return Call("POST", "/v1/schedules:preview", _preview, body=encode(body))


def explain_schedule(
    *, n: int = 10, from_: When | None = None, job_id: str | None = None, **when: Unpack[PreviewFields]
) -> Call[ScheduleExplanation]:
    """Explain a schedule that is still being written. One that a job could not have is not refused: `problems` names
    each wrong field. Otherwise the answer is that of `preview`, with warnings about the coming year and about minutes
    in which many jobs fire."""
    body = job_request({**when, "job_id": job_id, "n": n, "from": from_})
    return Call("POST", "/v1/schedules:explain", _explanation, body=encode(body))


def upcoming_fires(
    *, from_: When | None = None, to: When | None = None, limit: int | None = None, cursor: str | None = None
) -> Call[UpcomingFires]:
    """One page of the next fires of all jobs, in order of time. A job occurs as often as it fires."""
    params = query_of({"from": from_, "to": to, "limit": limit, "cursor": cursor})
    return Call("GET", "/v1/insights/upcoming", _upcoming_fires, params=params)


def heatmap(
    range: RangeWord = "day",
    *,
    from_: When | None = None,
    timezone: str | None = None,
) -> Call[HeatMap]:
    """The fires of all jobs in the next day, in cells of five minutes, or in the next week, in cells of an hour; and
    the minutes in which they pile up."""
    params = query_of({"range": range, "from": from_, "timezone": timezone})
    return Call("GET", "/v1/insights/heatmap", _heat_map, params=params)


def calendars(*, limit: int | None = None, cursor: str | None = None) -> Call[CalendarList]:
    """One page of calendars, by name."""
    return Call("GET", "/v1/calendars", _calendar_list, params=query_of({"limit": limit, "cursor": cursor}))


def calendar(name: str) -> Call[CalendarView]:
    """The calendar `name`: its rules, how many jobs use it, and how many of them do not follow its last change yet."""
    return Call("GET", _calendar_path(name), _calendar)


def set_calendar(
    name: str, rules: Mapping[str, Any] | None = None, *, if_version: int | None = None, **members: Any
) -> Call[CalendarView]:
    """Create or change a calendar. The rules are those of `PUT /v1/calendars/{name}`, as a mapping or as keywords:
    timezone, holidays, dates, weekdays, hours, blackouts, description. Rules that are left out are removed. With
    `if_version` only that version is changed."""
    headers = match_header(if_version)
    return Call("PUT", _calendar_path(name), _calendar, body=encode({**(rules or {}), **members}), headers=headers)


def preview_calendar(
    name: str, rules: Mapping[str, Any] | None = None, *, year: int | None = None
) -> Call[CalendarPreview]:
    """The closed days of a year, and the fires that would go or come if the calendar had these rules. Without `rules`:
    the days of those that it has. Nothing is stored."""
    body = {name: value for name, value in (("rules", rules), ("year", year)) if value is not None}
    return Call("POST", _calendar_path(name, ":preview"), _calendar_preview, body=encode(body))


def delete_calendar(name: str, *, if_version: int | None = None) -> Call[CalendarView]:
    """Delete a calendar that no job uses. Returns it as it was. Not repeated after a lost response."""
    headers = match_header(if_version)
    return Call("DELETE", _calendar_path(name), _calendar, headers=headers, repeatable=False)


def create_backfill(
    job_id: str, start: When, end: When, *, concurrency: int = 1, order: str = "oldest"
) -> Call[BackfillView]:
    """Make up for the fires of the job from `start` on and before `end`: each becomes a run, unless it has one already.
    At most `concurrency` of these runs are alive at once. `order`: oldest or newest first. Not repeated after a lost
    response."""
    body = encode({"from": text_of(start), "to": text_of(end), "concurrency": concurrency, "order": order})
    return Call("POST", job_path(job_id, ":backfill"), _backfill, body=body, repeatable=False)


def read_backfill(backfill_id: str) -> Call[BackfillView]:
    """A backfill and its progress."""
    return Call("GET", _backfill_path(backfill_id), _backfill)


def backfills(
    *, job: str | None = None, state: str | None = None, limit: int | None = None, cursor: str | None = None
) -> Call[BackfillList]:
    """One page of backfills, newest first: all, those of a job, or those in a state."""
    params = query_of({"job": job, "state": state, "limit": limit, "cursor": cursor})
    return Call("GET", "/v1/backfills", _backfill_list, params=params)


def change_backfill(backfill_id: str, concurrency: int, *, if_match: str | None = None) -> Call[BackfillView]:
    """Change how many runs of the backfill are alive at once. With `if_match`, only if it still has that `etag`."""
    path, headers, body = _backfill_path(backfill_id), match_header(if_match), encode({"concurrency": concurrency})
    return Call("PATCH", path, _backfill, body=body, headers=headers, repeatable=if_match is None)


def pause_backfill(backfill_id: str, *, if_match: str | None = None) -> Call[BackfillView]:
    """Let the backfill create no more runs. Those that exist continue."""
    return verb(_backfill_path(backfill_id, ":pause"), _backfill, only_if=if_match)


def resume_backfill(backfill_id: str, *, if_match: str | None = None) -> Call[BackfillView]:
    """Let the backfill continue."""
    return verb(_backfill_path(backfill_id, ":resume"), _backfill, only_if=if_match)


def cancel_backfill(backfill_id: str, *, running: bool = False, if_match: str | None = None) -> Call[BackfillView]:
    """End the backfill, and those of its runs that no worker has taken. With `running` also the others."""
    body = encode({"running": running})
    return verb(_backfill_path(backfill_id, ":cancel"), _backfill, body=body, only_if=if_match)


def _calendar_path(name: str, rest: str = "") -> str:
    return f"/v1/calendars/{segment(name)}{rest}"


def _backfill_path(backfill_id: str, rest: str = "") -> str:
    return f"/v1/backfills/{segment(backfill_id)}{rest}"
