"""Rows of lists (`view=row`): jobs and runs with the fields that a list shows."""

from __future__ import annotations

import msgspec

from mainspring.wire.jobs import JobListRow, JobView
from mainspring.wire.runs import RunList, RunListRow, RunRows, RunView

_LONGEST_ERROR = 200


def run_rows(found: RunList) -> RunRows:
    return RunRows([_run_row(view) for view in found.runs], found.next)


def job_row(view: JobView) -> JobListRow:
    row = JobListRow(**{name: getattr(view, name) for name in JobListRow.__struct_fields__})
    row.error_message = _cut(view.error_message)
    if view.latest_run is not None:
        row.latest_run = msgspec.structs.replace(view.latest_run, error_message=_cut(view.latest_run.error_message))
    return row


def _run_row(view: RunView) -> RunListRow:
    row = RunListRow(**{name: getattr(view, name) for name in RunListRow.__struct_fields__})
    row.error_message = _cut(view.error_message)
    return row


def _cut(error: str | None) -> str | None:
    return error if error is None or len(error) <= _LONGEST_ERROR else error[:_LONGEST_ERROR]
