"""Workflow runs as the audit tells them: definitions, step runs, members of maps, and when each became ready and
ended."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

from tests.cluster.history import HELD, QUEUED, WAITING, Event, History, Row

_STEP = "step:"


@dataclass(slots=True)
class StepRun:
    """A run of a step, or of a member of a mapped one. `ready`: the change by which it could start, or by which its
    members could be created."""

    run: str
    number: int
    place: int
    member: bool
    born: Event
    ready: Event | None = None
    end: Event | None = None

    def state_at(self, event: Event) -> Row | None:
        """How it had ended when this was written, as far as its transaction could see that."""
        end = self.end
        if end is None or end.seq > event.seq or (end.tx != event.tx and end.visible > event.visible):
            return None
        return end.new


@dataclass(slots=True)
class Flow:
    """A workflow run. `reruns`: the places of the steps that ran again, by the number of the first of these runs.
    `containers`: the runs that stand for it, in order. `fanouts`: the last row of each mapped step, by its run."""

    flow_id: str
    row: Row
    definition: Row
    reruns: dict[int, list[int]] = field(default_factory=dict)
    containers: list[str] = field(default_factory=list)
    runs: list[StepRun] = field(default_factory=list)
    fanouts: dict[str, Row] = field(default_factory=dict)

    @property
    def steps(self) -> list[StepRun]:
        return [run for run in self.runs if not run.member]

    def name(self, place: int) -> str:
        return f"step {self.definition['steps'][place]['name']} of {self.flow_id}"

    def parents(self, place: int) -> list[int]:
        join = self.definition["steps"][place].get("waits_for")
        return [] if join is None else list(self.definition["joins"][join])

    def rule(self, place: int) -> str:
        return str(self.definition["steps"][place].get("rule", "all_success"))

    def latest(self, place: int, before: Event) -> StepRun | None:
        """The newest run of a step that was created before this."""
        found = [run for run in self.steps if run.place == place and run.born.seq <= before.seq]
        return max(found, key=lambda run: run.number, default=None)

    def rerun_of(self, run: StepRun) -> list[int] | None:
        """The steps that ran again together with this run. None in the first run of all."""
        for first, places in self.reruns.items():
            if first <= run.number < first + len(places):
                return places
        return None

    def members(self, fanout: Row) -> list[StepRun]:
        first = fanout["first_number"]
        numbers = range(first, first + own_members(fanout))
        return [run for run in self.runs if run.member and run.number in numbers]


def own_members(fanout: Row) -> int:
    """How many members a fan-out creates. The others have succeeded before."""
    return int(fanout["total"] if fanout.get("repeats") is None else fanout["repeats"])


_known: WeakKeyDictionary[History, dict[str, Flow]] = WeakKeyDictionary()


def read_flows(history: History) -> dict[str, Flow]:
    """The workflow runs of a history, by their ids."""
    if history not in _known:
        _known[history] = _read(history)
    return _known[history]


def _read(history: History) -> dict[str, Flow]:
    definitions = {_version(event.new): event.new["definition"] for event in history.of("workflow_versions")}
    flows: dict[str, Flow] = {}
    for event in history.of("flows"):
        row = event.new
        key = (row["job_id"], row["generation"], row["version"])
        flow = flows.setdefault(row["flow_id"], Flow(row["flow_id"], row, definitions[key]))
        flow.row = row
        if row["container"] not in flow.containers:
            flow.containers.append(row["container"])
    for event in history.of("flow_reruns"):
        flows[event.new["flow_id"]].reruns[event.new["first_number"]] = event.new["steps"]
    for event in history.of("fanouts"):
        flows[event.new["flow_id"]].fanouts[event.new["run_id"]] = event.new
    lives: dict[str, list[StepRun]] = defaultdict(list)
    for life in history.runs.values():
        if (trigger := life[0].row["trigger"] or "").startswith(_STEP):
            _, flow_id, number = trigger.split(":")
            lives[flow_id].append(_step_run(int(number), life))
    for flow_id, runs in lives.items():
        flows[flow_id].runs = sorted(runs, key=lambda run: run.number)
    return flows


def _version(row: Row) -> tuple[Any, ...]:
    return row["workflow_id"], row["generation"], row["version"]


def _step_run(number: int, life: list[Event]) -> StepRun:
    row = life[0].row
    made = StepRun(row["run_id"], number, row["spec"]["step"]["place"], row["job_id"] is None, life[0])
    for event in life:
        if event.table == "run_history":
            made.end = made.end or event
        elif made.ready is None and event.op in "IU" and _is_ready(event):
            made.ready = event
    return made


def _is_ready(event: Event) -> bool:
    """A mapped step begins while it waits: for its members from then on."""
    old, new = event.old, event.new
    if new["state"] in (QUEUED, HELD):
        return old.get("state") in (None, WAITING)
    return bool(new["state"] == WAITING and new["started_at"] is not None)
