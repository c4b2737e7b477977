"""The routes of a box's local server for runs and dead letters."""

from __future__ import annotations

from typing import Any

from mainspring.domain.errors import Conflict, NotFound
from mainspring.domain.intake.declaration import TaskDeclaration
from mainspring.domain.intake.request import parse_time
from mainspring.domain.intake.rerun import repeated
from mainspring.domain.job import Overlap
from mainspring.domain.tags import check_tag
from mainspring.domain.transitions import JobStatus as JobState
from mainspring.domain.transitions import RunState
from mainspring.sdk.client.core import Call
from mainspring.sdk.testing.call_parsing import Route, matches, read_body, read_page, wanted_tag, within
from mainspring.sdk.testing.engine import Engine
from mainspring.sdk.testing.records import BoxRun
from mainspring.sdk.testing.views import dead_letter_view, run_view
from mainspring.wire.runs import DeadLetterList, Discarded, ReplayRequest, RunList, RunView, Why

_ALIASES = {
    "PENDING": (RunState.SCHEDULED, RunState.HELD, RunState.QUEUED),
    "COMPLETED": (RunState.SUCCESS,),
}


class LocalRuns:
    def __init__(self, engine: Engine, known: dict[str, TaskDeclaration]) -> None:
        self._engine = engine
        self._known = known

    def routes(self) -> dict[str, Route]:
        return {
            "GET runs": self._runs,
            "GET runs/{}": lambda run_id, _: run_view(self._run(run_id)),
            "GET runs/{}/why": self._why,
            "GET runs/{}/logs": self._logs,
            "POST runs/{}:cancel": self._cancel,
            "POST runs/{}:retry": self._retry,
            "GET dead-letters": self._dead_letters,
            "GET dead-letters/{}": lambda run_id, _: dead_letter_view(self._dead(run_id)),
            "POST dead-letters/{}:replay": self._replay,
            "POST dead-letters/{}:discard": self._discard,
        }

    def _runs(self, _: str, call: Call[Any]) -> RunList:
        asked = dict(call.params)
        states = _ALIASES.get(asked.get("status", "").upper(), (asked.get("status", "").upper(),))
        since, until = (parse_time(asked[name], name) if name in asked else None for name in ("since", "until"))
        label = asked.get("label", "").replace("=", ":", 1)
        found = [
            run
            for run in reversed(self._engine.runs.values())
            if ("status" not in asked or run.status in states)
            and matches(call, job=run.job_id, task=run.task, queue=run.definition.queue)
            and asked.get("error", "").lower() in (run.error or "").lower()
            and (since is None or run.scheduled_for >= since)
            and (until is None or run.scheduled_for < until)
            and within(call, "scheduled", run.scheduled_for)
            and within(call, "created", run.created_at)
            and (not label or label in [f"{key}:{value}" for key, value in (run.definition.spec.labels or {}).items()])
        ]
        page, following = read_page(found, call)
        return RunList([run_view(run) for run in page], following)

    def _why(self, run_id: str, _: Call[Any]) -> Why:
        run = self._run(run_id)
        if run.live:
            return Why(run_id, run.status, f"It waits: {run.reason or 'the box has not run it yet'}.")
        return Why(run_id, run.status, f"It ended {run.status}: {run.reason or 'no reason was recorded'}.")

    def _cancel(self, run_id: str, call: Call[Any]) -> RunView:
        run = self._run(run_id)
        check_tag("run", run_view(run).etag, wanted_tag(call))
        if run.live:
            self._engine.cancel(run)
        elif run.status is not RunState.CANCELLED:
            raise Conflict(f"run {run_id} has ended with {run.status}", code="run_ended")
        return run_view(run)

    def _dead_letters(self, _: str, call: Call[Any]) -> DeadLetterList:
        found = [run for run in reversed(self._engine.dead.values()) if matches(call, job=run.job_id, task=run.task)]
        page, following = read_page(found, call)
        return DeadLetterList([dead_letter_view(run) for run in page], following)

    def _discard(self, run_id: str, call: Call[Any]) -> Discarded:
        letter = self._dead(run_id)
        check_tag("dead letter", dead_letter_view(letter).etag, wanted_tag(call))
        del self._engine.dead[letter.run_id]
        return Discarded(1)

    def _replay(self, run_id: str, call: Call[Any]) -> RunView:
        letter = self._dead(run_id)
        check_tag("dead letter", dead_letter_view(letter).etag, wanted_tag(call))
        return self._again(letter, call)

    def _retry(self, run_id: str, call: Call[Any]) -> RunView:
        run = self._run(run_id)
        check_tag("run", run_view(run).etag, wanted_tag(call))
        if run.live:
            raise Conflict(f"run {run_id} has not ended", code="run_alive", hint="cancel it first, or wait")
        return self._again(run, call)

    def _again(self, run: BoxRun, call: Call[Any]) -> RunView:
        """Repeat the run by the rules of the server: at most once, and only if its job allows it."""
        self._check_not_replayed(run.run_id)
        job = self._engine.jobs[run.job_id]
        if not job.definition.schedule.one_time:
            if job.status is JobState.CANCELLED:
                raise Conflict(f"run {run.run_id} cannot be repeated: its job is CANCELLED", code="job_cancelled")
            if job.live and job.definition.overlap is Overlap.SKIP:
                raise Conflict(f"run {run.run_id} cannot be repeated: a run of its job is alive", code="overlap")
        given, new_id = read_body(call, ReplayRequest), self._engine.new_id()
        changed = repeated(
            run.definition,
            given.payload,
            self._engine.now,
            run_id=run.run_id,
            new_id=new_id,
            succeeded=run.status is RunState.SUCCESS,
            dropped=run.payload_dropped,
        )
        if changed is not None and memoryview(given.payload) and run.task in self._known:
            self._known[run.task].check(changed.payload)
        return run_view(self._engine.replay(run, new_id, changed or run.definition))

    def _check_not_replayed(self, run_id: str) -> None:
        again = self._engine.replays.get(run_id)
        if again is not None:
            raise Conflict(f"run {run_id} was repeated as run {again.run_id}", code="replayed", hint="repeat that one")

    def _logs(self, run_id: str, call: Call[Any]) -> str:
        """The logs of all attempts together. The box does not separate them."""
        return "".join(f"{line}\n" for line in self._run(run_id).logs)

    def _run(self, run_id: str) -> BoxRun:
        if run_id not in self._engine.runs:
            raise NotFound(f"there is no run {run_id}", hint="see GET /v1/runs")
        return self._engine.runs[run_id]

    def _dead(self, run_id: str) -> BoxRun:
        self._check_not_replayed(run_id)
        if run_id not in self._engine.dead:
            raise NotFound(f"there is no dead letter {run_id}", hint="see GET /v1/dead-letters")
        return self._engine.dead[run_id]
