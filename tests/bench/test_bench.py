"""The benchmarks run on real processes and check their results. They are small: the figures mean nothing here."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from uuid import UUID

import asyncpg
import pytest

from mainspring.bench import (
    dag,
    events,
    failover,
    fleet,
    growth,
    jitter,
    logs,
    output,
    overhead,
    overload,
    pages,
    process_tasks,
    rollup,
    schedules,
    sinks,
    storm,
    submit,
)
from mainspring.bench.cron_stream import check_seconds
from mainspring.bench.fired import check_fires
from mainspring.bench.recorded import check_one_run_each, ended_once
from mainspring.domain.transitions import StoredState
from mainspring.kernel.ids import uuid7_batch

pytestmark = pytest.mark.anyio

MOMENT = datetime(2031, 5, 4, 3, 2, 1, tzinfo=UTC)
SECOND = timedelta(seconds=1)


@pytest.mark.slow
async def test_submit_measures_the_answers_to_jobs_that_all_ran() -> None:
    figures = await submit.run(50, ceiling_jobs=100)
    assert figures["jobs"] == 50
    assert 0 < number(figures["p50_ms"]) <= number(figures["p95_ms"]) <= number(figures["p99_ms"])
    assert number(figures["per_s"]) > 0 and number(figures["ceiling_per_s"]) > 0


@pytest.mark.long
async def test_schedules_measures_how_late_the_last_of_many_fires_is() -> None:
    figures = await schedules.run(100, head_start=15.0)
    assert (figures["jobs"], figures["fired"]) == (100, 20)
    assert 0 <= number(figures["last_fire_lag_s"]) <= number(figures["last_end_lag_s"])
    assert number(figures["register_per_s"]) > 0 and number(figures["rss_mb"]) > 10


@pytest.mark.long
async def test_sinks_measures_jobs_with_and_without_a_sink() -> None:
    figures = await sinks.run(200)
    assert figures["jobs"] == 200
    assert number(figures["without_per_s"]) > 0 and number(figures["sent_per_s"]) > 0


@pytest.mark.long
async def test_storm_measures_how_late_critical_jobs_start_among_many() -> None:
    figures = await storm.run(storm.StormSizes(jobs=60, due=30, critical=5), head_start=4.0)
    assert (figures["jobs"], figures["due"], figures["critical"]) == (60, 30, 5)
    assert number(figures["critical_max_lag_s"]) >= 0 and number(figures["all_fired_s"]) >= 0
    assert number(figures["register_per_s"]) > 0 and number(figures["rss_mb"]) > 10


@pytest.mark.long
async def test_jitter_measures_how_late_tasks_start_that_are_due_at_random_moments() -> None:
    figures = await jitter.run(jitter.JitterSizes(schedules=40, seconds=1.0), head_start=3.0)
    assert figures["schedules"] == 40
    assert 0 <= number(figures["lag_p50_ms"]) <= number(figures["lag_p99_ms"]) <= number(figures["lag_max_ms"])
    assert number(figures["fired_p99_ms"]) >= 0 and number(figures["register_per_s"]) > 0


@pytest.mark.long
async def test_dag_measures_workflows_that_all_succeeded() -> None:
    figures = await dag.run(dag.DagSizes(members=200, chain=3, layers=3, workflows=3, checked=300))
    assert (figures["members"], figures["layers"], figures["small_workflows"]) == (200, "3 x 3", 3)
    assert 0 <= number(figures["chain_step_p50_ms"]) <= number(figures["chain_step_p99_ms"])
    assert number(figures["fanout_per_s"]) > 0 and number(figures["fanout_ratio"]) > 0
    assert number(figures["layers_s"]) > 0 and number(figures["small_workflows_s"]) > 0
    assert number(figures["fanout_rss_mb"]) > 10 and number(figures["check_s"]) >= 0


@pytest.mark.slow
async def test_events_measures_events_that_each_started_one_run() -> None:
    figures = await events.run(250, rate=1000)
    assert figures["events"] == 250 and 0 < number(figures["lag_p50_ms"]) <= number(figures["lag_p99_ms"])
    assert number(figures["events_per_s"]) > 0 and number(figures["starts_per_s"]) > 0


@pytest.mark.long
async def test_output_measures_runs_whose_logs_are_what_they_printed() -> None:
    figures = await output.run(12, rounds=1, lines=300)
    assert figures["mb"] == 12
    for way in ("postgresql", "folder"):
        assert number(figures[f"{way}_mb_per_s"]) > 0 and number(figures[f"{way}_capped_mb_per_s"]) > 0
        assert number(figures[f"{way}_worker_rss_mb"]) > 10 and number(figures[f"{way}_server_rss_mb"]) > 10
        assert number(figures[f"{way}_lines_per_s"]) > 0
    assert number(figures["lines_ratio"]) > 0


@pytest.mark.slow
async def test_fold_measures_what_each_run_costs_and_counts_every_one() -> None:
    figures = await rollup.run(400, per_fold=200)
    assert (figures["runs"], figures["tasks_1_folds"], figures["tasks_100_folds"]) == (400, 2, 2)
    assert number(figures["us_per_run"]) >= number(figures["tasks_1_us_per_run"]) > 0


@pytest.mark.long
async def test_pages_measures_every_page_of_the_dashboard() -> None:
    figures = await pages.run(pages.PagesSizes(jobs=200, runs=600, days=0.005))
    by_page = figures["by_page"]
    assert isinstance(by_page, dict) and len(by_page) > 20
    assert figures["slowest_ms"] == max(by_page.values()) == by_page[figures["slowest_page"]] > 0


@pytest.mark.long
async def test_logs_measures_searches_for_a_rare_and_a_common_word() -> None:
    figures = await logs.run(logs.LogSizes(runs=300, size=500, printing=50))
    assert (figures["runs"], figures["rare_logs"], figures["common_logs"]) == (300, 1, 100)
    assert 0 < number(figures["rare_first_s"]) <= number(figures["rare_whole_s"])
    assert 0 < number(figures["common_first_s"]) <= number(figures["common_logs_s"])


@pytest.mark.long
async def test_growth_measures_jobs_that_all_fired_beside_pending_ones() -> None:
    figures = await growth.run(growth.GrowthSizes([300], due=20, claimed=100, head_start=15.0))
    (row,) = figures["sizes"]
    assert row["jobs"] == 300 and row["bytes_per_pending_job"] > 300 and row["bytes_per_ended_run"] > 300
    assert row["claimed_per_s"] > 0 and row["registered_per_s"] > 0 and row["fired_cpu_us"] > 0
    assert 0 <= row["last_fire_s"] <= row["last_end_s"]
    assert growth.sizes_up_to(3_000_000) == [100_000, 1_000_000, 3_000_000]


@pytest.mark.long
async def test_process_measures_jobs_that_all_ran_in_child_interpreters() -> None:
    figures = await process_tasks.run(200)
    assert figures["jobs"] == 200
    assert number(figures["jobs_per_s"]) > 0


@pytest.mark.long
async def test_failover_measures_how_long_a_killed_server_holds_up_a_stream_of_jobs() -> None:
    figures = await failover.run(1, ["server"])
    assert figures.keys() == {"rounds", "server_s", "server_p50_s"}
    assert number(figures["server_s"]) > 0


@pytest.mark.long
async def test_overload_measures_that_workers_keep_their_runs_while_more_is_offered_than_a_server_takes() -> None:
    figures = await overload.run(
        overload.OverloadSizes(workers=20, runs=100, seconds=2.0, capacity_seconds=0.5, patience=2.0)
    )
    assert number(figures["capacity_per_s"]) > 0 and number(figures["offered_per_s"]) > 0
    assert (figures["lost_workers"], figures["held"]) == (0, 100)
    assert number(figures["refused"]) >= 0 and "recovered_s" in figures


@pytest.mark.slow
async def test_fleet_measures_what_exchanges_cost_and_loses_nothing() -> None:
    figures = await fleet.run(
        fleet.FleetSizes(workers=20, slots=2, seconds=0.1, rate=50.0, servers=2, window=3.0, warm_up=0.5)
    )
    assert number(figures["jobs_per_s"]) >= 0  # on a busy machine nothing may end within the window
    assert 0 <= number(figures["report_p50_ms"]) <= number(figures["report_p99_ms"])
    assert number(figures["server_us_per_exchange"]) > 0 and number(figures["postgres_us_per_exchange"]) > 0
    assert (figures["lost_workers"], figures["run_again"]) == (0, 0)
    assert number(figures["superseded"]) >= number(figures["superseded_by_load"]) >= 0
    assert number(figures["longest_silence_s"]) > 0


@pytest.mark.slow
async def test_overhead_measures_waves_of_sleeping_jobs() -> None:
    figures = await overhead.run(12, slots=4, seconds=0.2)
    assert (figures["jobs"], figures["slots"]) == (12, 4)
    assert abs(number(figures["ideal_s"]) - 0.6) < 1e-9
    assert number(figures["wall_s"]) >= 0.6 and number(figures["overhead_percent"]) >= 0
    assert number(figures["utilisation_percent"]) > 0


def test_overhead_counts_slots_that_stand_empty_while_there_is_work() -> None:
    def span(start: float, ran: float, recorded: float) -> overhead.BusySpan:
        return overhead.BusySpan(MOMENT + start * SECOND, ran * SECOND, MOMENT + recorded * SECOND)

    waves = [span(0.0, 1.0, 1.1), span(0.0, 1.0, 1.1), span(1.25, 1.0, 2.3), span(1.25, 1.0, 2.5)]
    figures = overhead.figures_of(waves, slots=2, seconds=1.0)
    assert (figures["ideal_s"], figures["wall_s"], figures["overhead_percent"]) == (2.0, 2.5, 25.0)
    assert figures["utilisation_percent"] == 80.0


# -- the checks find lost and repeated runs


async def test_a_job_that_did_not_end_or_ended_twice_is_noticed(connection: asyncpg.Connection) -> None:
    run_ids = uuid7_batch(3)
    job_ids = [str(run_id) for run_id in run_ids]
    await record(connection, run_ids[:2])
    with pytest.raises(AssertionError, match="3 runs, 2 of them ended, 2 ends recorded"):
        await check_one_run_each(connection, job_ids, 3)
    await record(connection, run_ids[2:])
    await check_one_run_each(connection, job_ids, 3)
    await record(connection, run_ids[:1])
    with pytest.raises(AssertionError, match="3 runs, 3 of them ended, 4 ends recorded"):
        await check_one_run_each(connection, job_ids, 3)


async def test_a_run_that_nobody_asked_for_is_noticed(connection: asyncpg.Connection) -> None:
    run_ids = uuid7_batch(3)
    await record(connection, run_ids)
    with pytest.raises(AssertionError, match="2 jobs, 2 accepted, 2 of them ended, 3 runs"):
        await check_one_run_each(connection, [str(run_id) for run_id in run_ids[:2]], 2)


async def test_a_job_that_was_not_accepted_is_noticed(connection: asyncpg.Connection) -> None:
    run_ids = uuid7_batch(2)
    await record(connection, run_ids)
    with pytest.raises(AssertionError, match="3 jobs, 2 accepted"):
        await check_one_run_each(connection, [str(run_id) for run_id in run_ids], 3)


async def test_a_run_that_failed_is_noticed(connection: asyncpg.Connection) -> None:
    run_ids = uuid7_batch(1)
    await record(connection, run_ids, state=StoredState.FAILED)
    with pytest.raises(AssertionError, match="SUCCESS"):
        await ended_once(connection, run_ids)


async def test_a_fire_that_is_missing_double_or_of_another_moment_is_noticed(connection: asyncpg.Connection) -> None:
    job_ids = ["a", "b"]
    await record(connection, uuid7_batch(1), job_ids=["a"], moments=[MOMENT])
    with pytest.raises(AssertionError, match="2 jobs were due, 1 of them ran, 1 runs recorded"):
        await check_fires(connection, job_ids, MOMENT)
    await record(connection, uuid7_batch(1), job_ids=["b"], moments=[MOMENT])
    await check_fires(connection, job_ids, MOMENT)
    with pytest.raises(AssertionError, match="another scheduled time"):
        await check_fires(connection, job_ids, MOMENT + SECOND)
    await record(connection, uuid7_batch(1), job_ids=["b"], moments=[MOMENT])
    with pytest.raises(AssertionError, match="2 of them ran, 3 runs recorded"):
        await check_fires(connection, job_ids, MOMENT)


async def test_a_second_of_a_cron_job_that_is_lost_or_double_is_noticed(connection: asyncpg.Connection) -> None:
    await record(connection, uuid7_batch(2), job_ids=["a", "a"], moments=[MOMENT, MOMENT + 3 * SECOND])
    with pytest.raises(AssertionError, match="lost or happened twice"):
        await check_seconds(connection, ["a"])
    await connection.execute(
        "insert into mainspring.missed_fires (tenant_id, job_id, first_at, last_at, count, reason) "
        "values (1, 'a', $1, $2, 2, 'late')",
        MOMENT + SECOND,
        MOMENT + 2 * SECOND,
    )
    await check_seconds(connection, ["a"])
    await record(connection, uuid7_batch(1), job_ids=["a"], moments=[MOMENT])
    with pytest.raises(AssertionError, match="lost or happened twice"):
        await check_seconds(connection, ["a"])


async def record(
    connection: asyncpg.Connection,
    run_ids: Sequence[UUID],
    *,
    state: StoredState = StoredState.SUCCESS,
    job_ids: Sequence[str | None] | None = None,
    moments: Sequence[datetime] | None = None,
) -> None:
    """Ended runs as the history has them."""
    await connection.execute(
        "insert into mainspring.run_history (run_id, tenant_id, lane_id, state, attempt, max_attempts, fence, "
        "scheduled_for, ended_at, job_id) "
        "select u.run_id, 1, 1, $2, 1, 4, 1, u.moment, clock_timestamp(), u.job_id "
        "from unnest($1::uuid[], $3::text[], $4::timestamptz[]) as u (run_id, job_id, moment)",
        run_ids,
        int(state),
        job_ids or [None] * len(run_ids),
        moments or [MOMENT] * len(run_ids),
    )


def number(figure: object) -> float:
    assert isinstance(figure, int | float)
    return figure
