"""Every end of a run goes through operations/lifecycle. The `follows` bits of a run say what follows its end."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from uuid import UUID

import asyncpg
import pytest

import mainspring
from mainspring.domain.transitions import Follows, StoredState
from mainspring.kernel.ids import DEFAULT_TENANT, uuid7
from mainspring.operations.lifecycle.cancel import cancel
from mainspring.operations.lifecycle.effects import Effects
from mainspring.operations.lifecycle.expire import expire
from mainspring.operations.lifecycle.report import settle
from mainspring.operations.lifecycle.rescue import rescue
from mainspring.store import runs
from mainspring.store.queries import load
from mainspring.wire.exchange import Outcome
from tests.sources import parsed
from tests.store.rows import a_lane, claim, ended, queued

pytestmark = pytest.mark.anyio

SOURCE = Path(mainspring.__file__).parent
# The benchmark measures the statements alone.
MAY_COMPLETE = ("operations/lifecycle/", "store/", "bench/")
COMPLETING = {
    "runs": {"end", "report_successes", "requeue", "record_attempts", "request_cancels"},
    "dead_letters": {"discard"},
    "fires": {
        "fire_one_time",
        "fire_recurring",
        "fire_free",
        "fire_locked_one_time",
        "fire_locked_recurring",
        "run_now",
    },
}


def completes(tree: ast.Module) -> list[str]:
    """The functions of the store that end or requeue runs, and that this module names."""
    modules: dict[str, str] = {}
    found: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module == "mainspring.store":
            modules.update({name.asname or name.name: name.name for name in node.names})
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("mainspring.store."):
            module = str(node.module).rpartition(".")[2]
            found += [name.name for name in node.names if name.name in COMPLETING.get(module, ())]
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            module = modules.get(node.value.id, "")
            found += [node.attr] if node.attr in COMPLETING.get(module, ()) else []
    return found


@pytest.mark.slow
def test_no_other_module_completes_runs() -> None:
    found = {}
    names = re.compile(r"\b(" + "|".join(name for names in COMPLETING.values() for name in names) + r")\b")
    for file in SOURCE.rglob("*.py"):
        code = file.read_text(encoding="utf-8")
        is_parsed = "mainspring.store" in code and names.search(code)
        found[file.relative_to(SOURCE).as_posix()] = completes(parsed(code)) if is_parsed else []
    assert {path for path, names in found.items() if names and not path.startswith(MAY_COMPLETE)} == set()
    named = {name for path, names in found.items() if path.startswith("operations/lifecycle/") for name in names}
    assert named == {name for names in COMPLETING.values() for name in names}, "the check finds them in their modules"


async def held(connection: asyncpg.Connection, worker_id: UUID, count: int = 1, *, attempts: int = 4) -> list[UUID]:
    lane_id = await a_lane(connection, f"work-{uuid7()}")
    run_ids = await queued(connection, lane_id, count, max_attempts=attempts)
    assert len(await claim(connection, [lane_id], count, worker_id)) == count
    return run_ids


class Listening:
    """A connection that records its statements."""

    def __init__(self, connection: asyncpg.Connection) -> None:
        self._connection = connection
        self.said: list[str] = []

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._connection, name)

        def call(statement: str, *arguments: Any) -> Any:
            self.said.append(statement)
            return method(statement, *arguments)

        return call


async def report(
    connection: asyncpg.Connection, worker_id: UUID, run_ids: Sequence[UUID], status: str = "SUCCESS"
) -> tuple[Effects, list[str]]:
    """The effects, and the statements that were executed."""
    outcomes = [Outcome(run_id, 1, status, error=None if status == "SUCCESS" else "x") for run_id in run_ids]
    listening = Listening(connection)
    effects = await settle(listening, worker_id, outcomes, lambda: 0.5)  # type: ignore[arg-type]
    return effects, listening.said


@pytest.mark.parametrize(
    ("status", "attempts", "names"),
    [
        ("SUCCESS", 4, ["report_successes"]),
        ("FAILED", 4, ["lock_reported", "insert_attempts", "requeue"]),
        ("FAILED", 1, ["lock_reported", "end_runs"]),
        ("CANCELLED", 4, ["lock_reported", "end_runs"]),
        ("RETURNED", 4, ["lock_reported", "insert_attempts", "requeue"]),
    ],
)
async def test_a_report_of_runs_without_bits_takes_no_further_statement(
    connection: asyncpg.Connection, status: str, attempts: int, names: list[str]
) -> None:
    worker_id = uuid7()
    run_ids = await held(connection, worker_id, 20, attempts=attempts)
    effects, said = await report(connection, worker_id, run_ids, status)
    assert said == [load("runs")[name] for name in names]
    assert (effects.ended, effects.fenced) == ([], [])
    assert len(effects.requeued) == (20 if "requeue" in names else 0)


async def test_a_run_that_failed_for_good_is_told_as_a_dead_letter(connection: asyncpg.Connection) -> None:
    worker_id = uuid7()
    run_ids = await held(connection, worker_id, 3, attempts=1)
    effects, _ = await report(connection, worker_id, run_ids, "FAILED")
    assert set(effects.dead) == set(run_ids)


async def mark(connection: asyncpg.Connection, run_ids: Sequence[UUID], follows: Follows) -> None:
    await connection.execute(
        "update mainspring.runs set follows = $2 where run_id = any ($1)", list(run_ids), int(follows)
    )


@pytest.mark.parametrize("how", ["success", "failure", "cancel", "expire", "rescue"])
async def test_a_run_with_bits_is_told_when_it_ends_and_keeps_them_in_the_history(
    connection: asyncpg.Connection, how: str
) -> None:
    worker_id = uuid7()
    bits = Follows.EDGES | Follows.NOTICE
    lane_id = await a_lane(connection)
    if how in ("cancel", "expire"):
        marked, plain = await queued(connection, lane_id, 2)
    else:
        marked, plain = await held(connection, worker_id, 2, attempts=1)
    await mark(connection, [marked], bits)
    await mark(connection, [plain], Follows(0))
    if how == "cancel":
        live = [run for run_id in (marked, plain) if (run := await runs.lock_run(connection, DEFAULT_TENANT, run_id))]
        effects = await cancel(connection, live)
    elif how == "expire":
        await connection.execute("update mainspring.runs set deadline = clock_timestamp()")
        effects = await expire(connection, await runs.overdue(connection, 10))
    elif how == "rescue":
        await connection.execute("update mainspring.runs set losses = 3")
        effects = await rescue(connection, await runs.held_by(connection, worker_id, 10), lambda: 0.5)
    else:
        effects, _ = await report(connection, worker_id, [marked, plain], "SUCCESS" if how == "success" else "FAILED")
    assert [(end.run_id, end.follows, end.feeds) for end in effects.ended] == [(marked, int(bits), None)]
    assert effects.released is None, "it had no slot to give back"
    assert {row["run_id"]: row["follows"] for row in await ended(connection)} == {marked: int(bits), plain: 0}


async def test_a_run_that_goes_back_into_its_lane_keeps_its_bits_for_its_end(connection: asyncpg.Connection) -> None:
    worker_id = uuid7()
    [run_id] = await held(connection, worker_id)
    await mark(connection, [run_id], Follows.LIMIT)
    effects, _ = await report(connection, worker_id, [run_id], "FAILED")
    assert effects.ended == []
    row = await connection.fetchrow("select state, follows from mainspring.runs")
    assert (row["state"], row["follows"]) == (StoredState.QUEUED, Follows.LIMIT)
