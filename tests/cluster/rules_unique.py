"""The rules for unique jobs. The load gives each key a name of its own, and every job with it has that name."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from tests.cluster.history import RUNNING, Event, History
from tests.cluster.load_limits import KEPT, REPLACED


def s7_one_live_job_per_unique_key(history: History) -> Iterator[str]:
    """A job is created only when the one before has ended, or, if its key says so, has been claimed."""
    holder: dict[str, str] = {}
    state: dict[str, int] = {}
    for event in history.of("runs"):
        run, name = event.row["run_id"], str(event.row["name"])
        if not name.startswith((KEPT, REPLACED)) or event.row["trigger"] is not None:
            continue  # runs that are created by hand do not ask for the key
        if event.op == "D":
            state.pop(run, None)
            continue
        if event.op == "I":
            before = holder.get(name, "")
            if before in state and not (name.startswith(REPLACED) and state[before] == RUNNING):
                yield f"{name}: {run} was created while {before} had the key, in state {state[before]}"
            holder[name] = run
        state[run] = event.new["state"]


def s7_a_merged_submission_names_a_job_that_lived(history: History) -> Iterator[str]:
    """What was merged counts as acknowledged: the job that it was merged into was alive at that time."""
    sent: dict[str, float] = defaultdict(lambda: float("inf"))
    for call in history.calls:
        key = str(call.body.get("idempotency_key"))
        sent[key] = min(sent[key], call.began)
        if call.verb != "submit" or call.result != "ok" or call.answer.get("unique") is None:
            continue
        life = history.runs.get(call.answer["job_id"], [])
        if not life or life[0].at > call.ended or _over(life) < sent[key]:
            yield f"{key} was {call.answer['unique']} with {call.answer['job_id']}, which did not live then"


def _over(life: list[Event]) -> float:
    return max((event.at for event in life if event.op == "D"), default=float("inf"))
