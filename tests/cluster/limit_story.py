"""Builds a history of runs that stand in lines, for tests of the rules about limits and unique jobs."""

from __future__ import annotations

from typing import Any

from tests.cluster.history import HELD, QUEUED, SUCCESS, Call
from tests.cluster.rules import judge
from tests.cluster.story import Story

LINE, OTHER = -11, -12


class LimitStory(Story):
    """A story with runs that stand in lines. Each of its runs is a job of its own."""

    def limit(self, at: float, slots: int | None, *, line: int = LINE, strict: bool = False) -> None:
        row = {"limit_id": -line, "name": f"limit{line}", "slots": slots, "strict": strict}
        self.write(at, "server", ("limits", "I", {}, row))
        self.write(at, "server", ("limit_keys", "I", {}, {"key_id": line, "limit_id": -line, "key": "a", "in_use": 0}))

    def change_limit(self, at: float, slots: int, *, line: int = LINE, strict: bool = False) -> None:
        row = {"limit_id": -line, "name": f"limit{line}", "slots": slots, "strict": strict}
        self.write(at, "server", ("limits", "U", row, row))

    def submit(self, at: float, run: str, *lines: int, **fields: Any) -> str:
        """Create a HELD run. It was sent and acknowledged a hundredth of a second before and after."""
        keys = list(lines or (LINE,))
        row = self.created(0) | {
            "run_id": run, "job_id": None, "state": HELD, "limit_keys": keys, "held_key": keys[0], "wake_at": None,
        } | fields  # fmt: skip
        self.write(at, "server", ("runs", "I", {}, row))
        self.runs[run] = row
        call = Call("submit", "", {"idempotency_key": run}, at - 0.01, at + 0.01, "ok", 201, {"job_id": run})
        self.history.calls.append(call)
        return run

    def count(self, line: int, change: int) -> tuple[str, str, dict[str, Any], dict[str, Any]]:
        return "limit_keys", "U", {"key_id": line, "in_use": 5}, {"key_id": line, "in_use": 5 + change}

    def turn(self, at: float, run: str, change: int = 0, **fields: Any) -> None:
        """A step of a run that takes (1) or gives back (-1) its slots."""
        new = self.runs[run] | fields
        counts = [self.count(line, change) for line in new["limit_keys"]] if change else []
        self.write(at, "server", ("runs", "U", self.runs[run], new), *counts)
        self.runs[run] = new

    def admit(self, at: float, run: str) -> None:
        self.turn(at, run, 1, state=QUEUED, held_key=None)

    def back_off(self, at: float, run: str) -> None:
        old = self.runs[run]
        self.turn(at, run, -1, state=HELD, fence=old["fence"] + 1, worker_id=None, held_key=old["limit_keys"][0])

    def work(self, at: float, run: str, until: float, *, attempt: int = 1) -> None:
        self.claim(at, run)
        self.lines(run, attempt, start=at + 0.001, end=until)

    def finish(self, at: float, run: str, state: int = SUCCESS, *, to: str | None = None) -> None:
        """The run ends. The one that gets its slots is admitted in the same transaction."""
        old = self.runs[run]
        changes = [("runs", "D", old, {}), ("run_history", "I", {}, old | {"state": state})]
        if to is None:
            changes += [self.count(line, -1) for line in old["limit_keys"] if old["state"] != HELD]
        else:
            new = self.runs[to] | {"state": QUEUED, "held_key": None}
            changes.append(("runs", "U", self.runs[to], new))
            self.runs[to] = new
        self.write(at, "server", *changes)


def limit_story(slots: int | None = 1, *, strict: bool = False) -> LimitStory:
    story = LimitStory()
    story.node("node")
    story.worker("worker")
    story.limit(0.0, slots, strict=strict)
    return story


def one_after_another(story: LimitStory) -> None:
    for number, run in enumerate(("a", "b")):
        story.submit(1.0 + number / 10, run)
    story.admit(1.2, "a")
    story.work(1.3, "a", 1.4)
    story.finish(1.5, "a", to="b")
    story.work(1.6, "b", 1.7)
    story.finish(1.8, "b")


def found(story: Story) -> set[str]:
    return {violation.rule for violation in judge(story.history)}
