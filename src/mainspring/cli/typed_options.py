"""Errors in the words that the user typed: the field `delay` of a request becomes the option `--in`.

Only options that were typed are named. A user who edits a job as JSON, or reads errors with --json, sees the fields.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from mainspring.domain.errors import MainspringError
from mainspring.wire.fields import FIELDS

# Paths in a request that have an option of their own. What follows a path is kept: `limits.memory` is `--limit memory`.
_OPTIONS = {field.name: field.option for field in FIELDS if field.option is not None and field.option[0] == "-"} | {
    "schedule.at": "--at", "schedule_time": "--at", "schedule.every": "--every", "schedule.cron": "--cron",
    "schedule.rrule": "--rrule", "schedule.event": "--event", "schedule.if": "--if",
    "schedule.batch": "--batch", "schedule.debounce": "--debounce",
    "schedule.exdates": "--exdate", "schedule.jitter": "--jitter",
    "schedule.start": "--start", "schedule.end": "--end", "schedule.max_runs": "--max-runs",
    "cron_expression": "--cron", "schedule.timezone": "--timezone",
    "schedule.calendar": "--calendar", "schedule.outside": "--outside",
    "schedule.dst": "--dst-gap", "schedule.dst.gap": "--dst-gap", "schedule.dst.overlap": "--dst-overlap",
    "max_retries": "--retries", "rate": "--rate", "http.url": "--http",
    "http.method": "--method", "http.headers": "--header", "http.body": "--body",
}  # fmt: skip
_TWO = re.compile(r"([\w.]+) and ([\w.]+)(?= )")
_FIRST = re.compile(r"[\w.]+(?= )")
_NOT_TYPED = ("If-Match", "$")


def detail_of(error: MainspringError, typed: Sequence[str]) -> str:
    """The detail of the error with what it is about: `--in: '5x' is not a duration`."""
    field = error.field
    if field in _NOT_TYPED:
        return error.detail
    given = {word.partition("=")[0] for word in typed if word.startswith("--")}
    option = None if field is None else _option(field, given)
    if field is None or option is None:
        return error.located_detail()
    two = _TWO.match(error.detail)
    if two is not None and field in two.groups():
        return " and ".join(_option(name, given) or name for name in two.groups()) + error.detail[two.end() :]
    first = _FIRST.match(error.detail)
    if first is not None and first[0] == field:
        return option + error.detail[first.end() :]
    return error.detail if error.detail.startswith(option) else f"{option}: {error.detail.removeprefix(f'{field}: ')}"


def _spelt_alike(field: str, given: set[str]) -> str | None:
    """The option with the name of the field: `--timeout-wait` for `timeout_wait`, `--header` for `headers`."""
    name = field.replace("_", "-")
    return next((option for option in (f"--{name}", f"--{name.removesuffix('s')}") if option in given), None)


def _option(field: str, given: set[str]) -> str | None:
    """The option for a path in a request, if it was given."""
    path, rest = field, ""
    while path not in _OPTIONS:
        path, dot, last = path.rpartition(".")
        if not dot:
            return _spelt_alike(field, given)
        rest = f"{last}.{rest}" if rest else last
    option = _OPTIONS[path]
    if option == "--timezone" and "--tz" in given:
        option = "--tz"
    return f"{option} {rest}".rstrip() if option in given else None
