"""The rules for workflows: a step starts once, after its parents have ended as its rule says, joins count exactly, and
a workflow run ends when its steps have."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from tests.cluster.flow_book import Flow, StepRun, own_members, read_flows
from tests.cluster.history import (
    CANCELLED,
    FAILED,
    HELD,
    QUEUED,
    RUNNING,
    SKIPPED,
    SUCCESS,
    WAITING,
    Event,
    History,
    Row,
)

CANCEL_FLOW = "cancel a workflow run"
_CLOCK_ERROR = 0.05
_ENDED_BY_STEPS = 4  # the state of a workflow run whose steps have all ended


def s9_a_step_starts_after_its_parents(history: History) -> Iterator[str]:
    """By what was stored: the ends of its parents that its transaction could see allow the start."""
    for flow in read_flows(history).values():
        for run in flow.steps:
            if run.ready is None or not flow.parents(run.place):
                continue
            parents = [flow.latest(parent, run.ready) for parent in flow.parents(run.place)]
            ends = [None if parent is None else parent.state_at(run.ready) for parent in parents]
            if not _may_start(flow, run, ends):
                states = [None if end is None else end["state"] for end in ends]
                yield f"{flow.name(run.place)} started by the rule {flow.rule(run.place)} after {states}"


def _may_start(flow: Flow, run: StepRun, ends: Sequence[Row | None]) -> bool:
    again = flow.rerun_of(run)
    if again is not None and not set(again).intersection(flow.parents(run.place)):
        return all(end is not None for end in ends)  # it was named, or ran before: its rule is not asked again
    states = [end["state"] for end in ends if end is not None]
    match flow.rule(run.place):
        case "all_success":
            return states.count(SUCCESS) == len(ends)
        case "all_done":
            return len(states) == len(ends)
        case "one_success":
            return SUCCESS in states
        case _:
            return any(end is not None and _is_bad(end) for end in ends)


def _is_bad(end: Row) -> bool:
    blocked = end["state"] == SKIPPED and str(end["reason"] or "").startswith("upstream failed")
    return bool(blocked or end["state"] in (FAILED, CANCELLED))


def s9_a_step_works_after_its_parents(history: History) -> Iterator[str]:
    """By what the attempts wrote down: the work of a parent that succeeded was over."""
    first: dict[str, float] = {}
    for (run_id, _), (begin, _end) in history.extents.items():
        first[run_id] = min(begin, first.get(run_id, begin))
    for flow in read_flows(history).values():
        for run in flow.steps:
            if run.run not in first or run.ready is None or flow.rule(run.place).startswith("one_"):
                continue
            for place in flow.parents(run.place):
                parent = flow.latest(place, run.ready)
                over = None if parent is None else _work_over(history, parent)
                if over is not None and over > first[run.run] + _CLOCK_ERROR:
                    early = over - first[run.run]
                    yield f"{flow.name(run.place)} began {early:.3f} s before {flow.name(place)} was over"


def _work_over(history: History, parent: StepRun) -> float | None:
    if parent.end is None or parent.end.new["state"] != SUCCESS:
        return None
    extent = history.extents.get((parent.run, parent.end.new["attempt"]))
    return None if extent is None else extent[1]


def s9_a_step_runs_once(history: History) -> Iterator[str]:
    """Each step has one run, and one for each rerun that repeats it, or a step before it. None of them becomes ready
    twice."""
    for flow in read_flows(history).values():
        for places in map(set, flow.reruns.values()):
            for place in range(len(flow.definition["steps"])):
                if place not in places and places.intersection(flow.parents(place)):
                    yield f"{flow.name(place)} did not run again, although a parent did"
        wanted = Counter(range(len(flow.definition["steps"])))
        wanted.update(place for places in flow.reruns.values() for place in places)
        for place, count in Counter(run.place for run in flow.steps).items():
            if count > wanted[place]:
                yield f"{flow.name(place)} has {count} runs, and {wanted[place]} were wanted"
        for run in flow.runs:
            times = sum(map(_becomes_ready, history.runs[run.run]))
            if times > 1:
                yield f"{flow.name(run.place)} became ready {times} times"


def _becomes_ready(event: Event) -> bool:
    """Also if it had started: another attempt of a run has a new fence, but a second start has not."""
    old, new = event.old, event.new
    if event.table != "runs" or new.get("state") not in (QUEUED, HELD):
        return False
    return event.op == "I" or old["state"] == WAITING or (old["state"] == RUNNING and old["fence"] == new["fence"])


def s9_joins_count_exactly(history: History) -> Iterator[str]:
    """A mapped step has each of its members once, ends after all of them, and tells how they ended."""
    for flow in read_flows(history).values():
        ends = {run.run: run.end for run in flow.steps}
        for run_id, fanout in flow.fanouts.items():
            if fanout["total"] is None:
                continue
            members = flow.members(fanout)
            what = flow.name(fanout["step"])
            double = [number for number, count in Counter(run.number for run in members).items() if count > 1]
            if double:
                yield f"{what}: the members {double} were born twice"
            end = ends.get(run_id)
            if end is not None and end.new["state"] in (SUCCESS, FAILED) and fanout["failures"] is None:
                yield from _counted(what, fanout, members, end)


def _counted(what: str, fanout: Row, members: list[StepRun], end: Event) -> Iterator[str]:
    if fanout["first_number"] is None:  # it failed before its members were known
        return
    states = Counter(row["state"] for run in members if (row := run.state_at(end)) is not None)
    states[SUCCESS] += fanout["total"] - own_members(fanout)
    if states.total() != fanout["total"]:
        yield f"{what} ended after {states.total()} of its {fanout['total']} members"
    told = end.new.get("result") or {}
    for word, number in (("total", fanout["total"]), ("succeeded", states[SUCCESS]), ("skipped", states[SKIPPED])):
        if told.get(word, number) != number:
            yield f"{what} tells {told[word]} as {word}, and there are {number}"
    if (end.new["state"] == SUCCESS) != (states[SUCCESS] + states[SKIPPED] == fanout["total"]):
        yield f"{what} ended with {end.new['state']}, its members with {dict(states)}"


def s9_a_workflow_run_ends_with_its_steps(history: History) -> Iterator[str]:
    """All of its step runs and members have ended before, also if it is cancelled or times out. After an acknowledged
    cancel none of its steps becomes ready."""
    for flow in read_flows(history).values():
        for container in flow.containers:
            yield from _none_alive(flow, _end_of(history, container))
        end = _end_of(history, flow.containers[-1])
        if end is not None and flow.row["state"] == _ENDED_BY_STEPS and flow.row["stop_reason"] is None:
            yield from _all_ended(flow, end)
    for call in history.calls:
        if call.verb == CANCEL_FLOW and call.result == "ok" and call.target in (flows := read_flows(history)):
            for run in flows[call.target].runs:
                if run.born.at < call.began and run.ready is not None and run.ready.at > call.ended:
                    yield f"{flows[call.target].name(run.place)} started after the cancel was acknowledged"


def _none_alive(flow: Flow, end: Event | None) -> Iterator[str]:
    if end is None:
        return
    for run in flow.runs:
        if run.born.seq <= end.seq and run.state_at(end) is None:
            yield f"{flow.name(run.place)} was alive when its workflow run ended"


def _all_ended(flow: Flow, end: Event) -> Iterator[str]:
    last = set(flow.definition["last"])
    bad = False
    for place in range(len(flow.definition["steps"])):
        run = flow.latest(place, end)
        row = None if run is None else run.state_at(end)
        if row is None:
            yield f"{flow.name(place)} had not ended when its workflow run did"
        elif place in last:
            bad = bad or _is_bad(row)
    if bad != (end.new["state"] == FAILED):
        yield f"workflow run {flow.flow_id} ended with {end.new['state']}, and its last steps did not"


def _end_of(history: History, run_id: str) -> Event | None:
    found = [event for event in history.runs.get(run_id, ()) if event.table == "run_history"]
    return found[0] if found else None
