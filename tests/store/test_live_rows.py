"""Rows of live runs are decoded by position: the columns of each statement are the fields of its struct, in order."""

from __future__ import annotations

import asyncpg
import msgspec
import pytest

from mainspring.store import runs
from mainspring.store.queries import load

pytestmark = pytest.mark.anyio

ROWS: dict[str, type[msgspec.Struct]] = {
    "claim_from_lane": runs.ClaimedRun,
    "claim_from_lanes": runs.ClaimedRun,
    "claim_fairly": runs.ClaimedRun,
    "redeliver": runs.ClaimedRun,
    "lock_reported": runs.HeldRun,
    "runs_held_by": runs.HeldRun,
    "lock_run": runs.LiveRun,
    "lock_runs_of_job": runs.LiveRun,
    "overdue": runs.OverdueRun,
    "requeue": runs.RequeuedRun,
}


@pytest.mark.parametrize("name", ROWS)
async def test_columns_are_fields(connection: asyncpg.Connection, name: str) -> None:
    statement = await connection.prepare(load("runs")[name])
    assert tuple(column.name for column in statement.get_attributes()) == ROWS[name].__struct_fields__


@pytest.mark.parametrize("name", ["report_successes", "end_runs"])
async def test_an_ended_row_is_its_run_and_what_follows(connection: asyncpg.Connection, name: str) -> None:
    statement = await connection.prepare(load("runs")[name])
    assert [column.name for column in statement.get_attributes()] == ["run_id", "follows"]
