"""The complete statements of the hot path, with constants and fragments filled in, so that reviews show a change.

Renew it with `python -m tests.store.sql_snapshot`, from the folder that contains `tests`. `python -m
tests.store.sql_snapshot runs overdue` prints a statement that is not in it.
"""

from __future__ import annotations

import sys
from pathlib import Path

from mainspring.store.queries import load

SNAPSHOT = Path(__file__).with_name("sql.snapshot")
RENEWAL = "python -m tests.store.sql_snapshot"
# Statements that run for each job, run or exchange: submit, fire, claim, report, exchange, requeue, hold back and
# admission.
HOT = {
    "exchange_groups": ["exchange_together"],
    "fire": [
        "due_scan", "fire_one_time", "lock_due", "fire_recurring", "fire_free", "fire_locked_recurring",
        "fire_locked_one_time",
    ],
    "hand_off": ["hand_off_runs"],
    "gates": ["lock_gates", "pass_gates"],
    "jobs": ["insert_jobs"],
    "limits": ["lock_lines", "pick_heads", "admit", "admit_once", "hold_back"],
    "runs": [
        "insert_runs", "insert_held_runs", "insert_plain_runs", "claim_from_lane", "claim_from_lanes", "claim_fairly",
        "claim_through_gates", "ready_lanes", "redeliver", "report_successes", "lock_reported", "requeue", "end_runs",
        "insert_attempts", "to_stop",
    ],
    "workers": ["advance", "note_starts"],
}  # fmt: skip


def dump() -> str:
    """The statements of the list in its order, each under its file and name."""
    return "\n".join(f"-- {file}: {name}\n{load(file)[name]}\n" for file, names in HOT.items() for name in names)


def main() -> None:
    if len(sys.argv) == 3:
        sys.stdout.write(load(sys.argv[1])[sys.argv[2]] + "\n")
        return
    SNAPSHOT.write_text(dump(), encoding="utf-8")
    sys.stdout.write(f"wrote {SNAPSHOT.name}\n")


if __name__ == "__main__":
    main()
