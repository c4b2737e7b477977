"""Calls for runs, dead letters, workers and tasks."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, TypedDict, Unpack

from mainspring.domain.payload_keys import value_text
from mainspring.sdk.client.calls.common import query_of, text_of, verb, with_payload
from mainspring.sdk.client.core import Call, ServerAnswer, encode, json_of, segment
from mainspring.sdk.client.job_fields import When
from mainspring.wire.logs import LogHits, LogMatches, LogRange
from mainspring.wire.runs import (
    DeadLetterList,
    DeadLetterView,
    Discarded,
    Replayed,
    RunList,
    RunView,
    TimelineEntry,
    Why,
    WorkerList,
    WorkerView,
)
from mainspring.wire.tasks import TaskList

_run = json_of(RunView)
_run_list = json_of(RunList)
_why = json_of(Why)
_worker = json_of(WorkerView)
_worker_list = json_of(WorkerList)
_task_list = json_of(TaskList)
_dead_letter = json_of(DeadLetterView)
_dead_letter_list = json_of(DeadLetterList)
_timeline = json_of(list[TimelineEntry])
_replayed = json_of(Replayed)
_log_range = json_of(LogRange)
_log_matches = json_of(LogMatches)
_log_hits = json_of(LogHits)
_discarded = json_of(Discarded)


class RunFilters(TypedDict, total=False):
    """Filters for runs. `since` and `until` are other names of `scheduled_after` and `scheduled_before`."""

    status: str | None
    job: str | None
    queue: str | None
    task: str | None
    error: str | None
    label: str | None
    worker: str | None
    created_by: str | None
    since: When | None
    until: When | None
    scheduled_after: When | None
    scheduled_before: When | None
    created_after: When | None
    created_before: When | None
    generation: int | None
    limit: int | None
    cursor: str | None
    payload: Mapping[str, Any] | None


class DeadLetterFilters(TypedDict, total=False):
    """Filters for dead letters. `error` searches error messages. `since` and `until` are compared with `died_at`."""

    job: str | None
    task: str | None
    queue: str | None
    error: str | None
    since: When | None
    until: When | None


class LogFilters(TypedDict, total=False):
    """Filters for the output of runs. `since` and `until`: logs that had output in this time."""

    job: str | None
    task: str | None
    queue: str | None
    worker: str | None
    label: str | None
    status: str | None
    since: When | None
    until: When | None


def run(run_id: str) -> Call[RunView]:
    """The run `run_id`."""
    return Call("GET", _run_path(run_id), _run)


def runs(**filters: Unpack[RunFilters]) -> Call[RunList]:
    """One page of runs, newest first. `error` searches error messages. `payload`: values of keys that the job or its
    task declares with `search`, such as {"account": 42}."""
    keys = filters.pop("payload", None) or {}
    values = {f"payload.{path}": value_text(value) for path, value in keys.items()}
    return Call("GET", "/v1/runs", _run_list, params=(*query_of(filters), *query_of(values)))


def cancel_run(run_id: str, *, if_match: str | None = None) -> Call[RunView]:
    """Cancel one run: at once if it waits, through its worker if it is running. With `if_match`, only if it still has
    that `etag`."""
    return verb(_run_path(run_id, ":cancel"), _run, only_if=if_match)


def retry_run(run_id: str, payload: Mapping[str, Any] | None = None, *, if_match: str | None = None) -> Call[RunView]:
    """Repeat an ended run as a new run with the same scheduled time, with another payload if one is given. A repeat of
    a success, or with another payload, has an idempotency key of its own. Not repeated after a lost response. A run is
    repeated at most once. With `if_match`, only if it still has that `etag`."""
    body = with_payload({}, payload)
    return verb(_run_path(run_id, ":retry"), _run, body=body, repeatable=False, only_if=if_match)


def timeline(run_id: str) -> Call[list[TimelineEntry]]:
    """The states of the run in order, with time, attempt, node, worker and reason."""
    return Call("GET", _run_path(run_id, "/timeline"), _timeline)


def why(run_id: str) -> Call[Why]:
    """Why the run is not running, in one sentence."""
    return Call("GET", _run_path(run_id, "/why"), _why)


def logs(run_id: str, attempt: int | None = None) -> Call[str]:
    """The output of the run's latest attempt, or of the given one. `attempt` counts from 1."""
    return Call("GET", _run_path(run_id, "/logs"), _printed, params=query_of({"attempt": attempt}))


def log_lines(
    run_id: str,
    attempt: int | None = None,
    *,
    start: int | None = None,
    before: int | None = None,
    lines: int | None = None,
    numbered: bool = False,
) -> Call[LogRange]:
    """The last lines of the output; or those from the byte `start` on; or those that end before the byte `before`."""
    asked = {
        "attempt": attempt,
        "start": start,
        "before": before,
        "lines": lines,
        "numbered": "true" if numbered else None,
    }
    return Call("GET", _run_path(run_id, "/logs/range"), _log_range, params=query_of(asked))


def search_log(
    run_id: str, text: str, attempt: int | None = None, *, start: int | None = None, limit: int | None = None
) -> Call[LogMatches]:
    """The lines of the output that contain `text`, whatever its case, from the byte `start` on. As long as `more` is
    true, ask again with `start` = `searched_to`."""
    asked = {"text": text, "attempt": attempt, "start": start, "limit": limit}
    return Call("GET", _run_path(run_id, "/logs/search"), _log_matches, params=query_of(asked))


def search_logs(
    text: str | None = None,
    *,
    regex: str | None = None,
    inside_words: bool = False,
    lines: int | None = None,
    limit: int | None = None,
    cursor: str | None = None,
    **filters: Unpack[LogFilters],
) -> Call[LogHits]:
    """The logs of all runs with lines that contain `text` as whole words, or match `regex`, an expression of RE2, the
    newest run first. Of each log at most `lines` lines are returned."""
    inside = "true" if inside_words else None
    asked = {"text": text, "regex": regex, "inside_words": inside, **filters, "lines": lines}
    return Call("GET", "/v1/logs", _log_hits, params=query_of({**asked, "limit": limit, "cursor": cursor}))


def dead_letters(
    *, limit: int | None = None, cursor: str | None = None, **filters: Unpack[DeadLetterFilters]
) -> Call[DeadLetterList]:
    """One page of dead letters, newest first."""
    params = query_of({**filters, "limit": limit, "cursor": cursor})
    return Call("GET", "/v1/dead-letters", _dead_letter_list, params=params)


def dead_letter(run_id: str) -> Call[DeadLetterView]:
    """One dead letter, with its payload and the error of each attempt."""
    return Call("GET", _letter_path(run_id), _dead_letter)


def replay(run_id: str, payload: Mapping[str, Any] | None = None, *, if_match: str | None = None) -> Call[RunView]:
    """Repeat a dead letter as a new run with the same scheduled time, with another payload if one is given. Not
    repeated after a lost response. A dead letter is replayed at most once. With `if_match`, only if it still has that
    `etag`."""
    body = with_payload({}, payload)
    return verb(_letter_path(run_id, ":replay"), _run, body=body, repeatable=False, only_if=if_match)


def replay_dead_letters(
    payload: Mapping[str, Any] | None = None,
    *,
    all: bool = False,
    limit: int | None = None,
    **filters: Unpack[DeadLetterFilters],
) -> Call[Replayed]:
    """Repeat the dead letters that match the filters, or `all` of them. At most 100,000 per call."""
    body = with_payload(_choice(filters, everything=all, limit=limit), payload)
    return Call("POST", "/v1/dead-letters:replay", _replayed, body=body, repeatable=False)


def discard(run_id: str, *, if_match: str | None = None) -> Call[Discarded]:
    """Discard a dead letter. Its run stays in the history. With `if_match`, only if it still has that `etag`."""
    return verb(_letter_path(run_id, ":discard"), _discarded, repeatable=False, only_if=if_match)


def discard_dead_letters(
    *,
    all: bool = False,
    limit: int | None = None,
    **filters: Unpack[DeadLetterFilters],
) -> Call[Discarded]:
    """Discard the dead letters that match the filters, or `all` of them. At most 100,000 per call."""
    body = encode(_choice(filters, everything=all, limit=limit))
    return Call("POST", "/v1/dead-letters:discard", _discarded, body=body, repeatable=False)


def workers() -> Call[WorkerList]:
    """All workers and what they can run."""
    return Call("GET", "/v1/workers", _worker_list)


def tasks() -> Call[TaskList]:
    """The tasks that workers offer, with their parameters."""
    return Call("GET", "/v1/tasks", _task_list)


def worker(worker_id: str) -> Call[WorkerView]:
    """The worker `worker_id`."""
    return Call("GET", f"/v1/workers/{segment(worker_id)}", _worker)


def drain_worker(worker_id: str, *, if_match: str | None = None) -> Call[WorkerView]:
    """Ask a worker to finish its runs and to shut down. With `if_match`, only if it still has that `etag`."""
    return verb(f"/v1/workers/{segment(worker_id)}:drain", _worker, only_if=if_match)


def _run_path(run_id: str, rest: str = "") -> str:
    return f"/v1/runs/{segment(run_id)}{rest}"


def _letter_path(run_id: str, rest: str = "") -> str:
    return f"/v1/dead-letters/{segment(run_id)}{rest}"


def _choice(filters: DeadLetterFilters, *, everything: bool, limit: int | None) -> dict[str, Any]:
    given = {**filters, "all": everything or None, "limit": limit}
    return {
        name: text_of(value) if isinstance(value, datetime) else value
        for name, value in given.items()
        if value is not None
    }


def _printed(answer: ServerAnswer) -> str:
    return answer.content.decode("utf-8", "replace")
