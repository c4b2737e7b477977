"""Workflows in a box: rules, results, fan-out, cancel and rerun, by the code that a server runs."""

from __future__ import annotations

from typing import Any

import pytest

import mainspring.testing
from mainspring import Context, GiveUp, Mainspring, RunFailed
from mainspring.domain.errors import Conflict, InvalidInput

START = "2026-01-01T00:00:00Z"


def broken() -> dict[str, Any]:
    """What goes wrong. Tests mend it."""
    return {"load": True, "rows": {3}}


class Nightly:
    """An application with a workflow of five steps."""

    def __init__(self) -> None:
        self.app = app = Mainspring("nightly-tests")
        self.broken = broken()
        self.wf = wf = app.workflow("nightly", cron="0 2 * * *", parameters={"region": "eu", "rows": [1, 2, 3]})

        @wf.step(region=wf.parameter("region"), rows=wf.parameter("rows"))
        @app.task("etl.extract")
        def extract(region: str, rows: list[int]) -> dict[str, Any]:
            return {"region": region, "rows": rows}

        @app.task
        def resize(row: int, place: list[int]) -> int:
            if row in self.broken["rows"]:
                raise GiveUp(f"row {row}")
            return row * 10

        @app.task
        def load(region: str) -> str:
            if self.broken["load"]:
                raise GiveUp("no disk")
            return f"loaded {region}"

        @app.task
        async def report(counts: dict[str, Any], loaded: str = "not loaded") -> str:
            return f"{counts['succeeded']} of {counts['total']}, {loaded}"

        self.extract = extract
        member = wf.step(resize, row=wf.item, place=[wf.index, wf.total])
        self.resize = member.map(extract.result["rows"], max_parallel=2, max_failures=1)
        self.load = wf.step(load, region=extract.result["region"])
        self.report = wf.step(report, counts=self.resize.result, loaded=self.load.result)
        self.alarm = wf.step(app.task("alarm")(lambda: "rang"), name="alarm", after=self.load, rule="one_failed")


def states(view: Any) -> dict[str, str]:
    return {step.name: step.status for step in view.steps}


def test_a_workflow_fires_fails_in_the_middle_is_mended_and_rerun_from_there() -> None:
    nightly = Nightly()
    with mainspring.testing.run(nightly.app, start=START) as box:
        box.advance("3h")
        [brief] = box.client.workflow_runs("nightly").runs
        failed = box.client.workflow_run(brief.run_id)
        assert (failed.status, failed.reason) == ("FAILED", "step load failed")
        assert states(failed) == {
            "extract": "SUCCESS", "resize": "SUCCESS", "load": "FAILED", "report": "SKIPPED", "alarm": "SUCCESS",
        }  # fmt: skip
        by_name = {step.name: step for step in failed.steps}
        assert by_name["report"].reason == "upstream failed: load"
        assert by_name["resize"].map is not None
        assert (by_name["resize"].map.total, by_name["resize"].map.succeeded, by_name["resize"].map.failed) == (3, 2, 1)
        members = box.client.workflow_steps(brief.run_id, name="resize", members=True).steps
        assert [(one.index, one.status) for one in members] == [(0, "SUCCESS"), (1, "SUCCESS"), (2, "FAILED")]

        nightly.broken["load"] = False
        handle = box.client.workflow_run_handle(brief.run_id)
        assert handle.rerun().status == "RUNNING"
        view = handle.succeed()
        assert (view.reruns, view.counts) == (1, {"SUCCESS": 4, "SKIPPED": 1})
        assert {step.name: step.rerun for step in view.steps} == {
            "extract": 0, "resize": 0, "load": 1, "report": 1, "alarm": 1,
        }  # fmt: skip
        assert states(view)["alarm"] == "SKIPPED"  # nothing failed this time
        assert handle.result(nightly.report) == "2 of 3, loaded eu"
        assert len(box.runs_of(nightly.load)) == 2  # the earlier run stays visible


def test_parameters_are_those_of_the_run_and_results_keep_their_types() -> None:
    nightly = Nightly()
    nightly.broken.update(load=False, rows=set())
    with mainspring.testing.run(nightly.app, start=START) as box:
        handle = nightly.wf.run(region="us", rows=[7, 8])
        assert handle.result(nightly.report) == "2 of 2, loaded us"
        assert [run.result for run in box.runs_of(nightly.resize) if run.index is not None] == [70, 80]
        with pytest.raises(InvalidInput, match="no parameter"):
            nightly.wf.run(regoin="us")


def test_too_many_failed_members_fail_the_step_and_the_rest_is_skipped() -> None:
    nightly = Nightly()
    nightly.broken.update(load=False, rows={0, 1, 2})
    with mainspring.testing.run(nightly.app, start=START) as box:
        handle = nightly.wf.run(rows=list(range(10)))
        with pytest.raises(RunFailed, match="resize"):
            handle.succeed()
        step = next(step for step in handle.view().steps if step.name == "resize")
        assert step.map is not None and step.status == "FAILED"
        assert step.map.failed == 2 and step.map.created <= 4 and step.map.ended == 10
        assert box.runs_of(nightly.report)[0].status == "SKIPPED"


def test_a_cancelled_workflow_run_starts_nothing_more() -> None:
    nightly = Nightly()
    with mainspring.testing.run(nightly.app, start=START) as box:
        handle = nightly.wf.run()
        view = handle.cancel(reason="wrong region")
        assert (view.status, view.reason) == ("CANCELLED", "wrong region")
        box.advance("1h")
        assert set(states(handle.view()).values()) == {"CANCELLED"}


def test_a_cancelled_workflow_run_ends_with_its_running_step() -> None:
    app = Mainspring("stopped")
    wf = app.workflow("stopped", overlap="skip")
    seen: list[tuple[str, str | None]] = []

    @wf.step()
    def first() -> None:
        if not seen:
            view = handles[0].cancel(reason="wrong region")
            seen.append((view.status, view.reason))
            with pytest.raises(Conflict, match="is being stopped"):
                handles[0].rerun()

    @wf.step(after=[first])
    def second() -> None: ...

    with mainspring.testing.run(app, start=START):
        handles = [wf.run()]
        view = handles[0].wait()
        assert seen == [("RUNNING", "cancel requested; waiting for its steps to end")]
        assert (view.status, view.reason) == ("CANCELLED", "wrong region")
        assert set(states(view).values()) == {"CANCELLED"}
        handles[0].rerun()
        assert handles[0].wait().status == "SUCCESS"


def test_a_rerun_of_what_failed_repeats_only_the_failed_members() -> None:
    app = Mainspring("members")
    wf = app.workflow("members")
    ran: list[int] = []
    failing = {1, 3}

    @app.task
    def each(item: str, index: int) -> str:
        ran.append(index)
        if index in failing:
            raise GiveUp("broken")
        return item

    mapped = wf.step(each, item=wf.item, index=wf.index).map(["a", "b", "c", "d"])

    @wf.step(results=mapped.result)
    def join(results: dict[str, Any]) -> dict[str, Any]:
        return results

    with mainspring.testing.run(app, start=START):
        handle = wf.run()
        assert handle.wait().status == "FAILED"
        assert sorted(ran) == [0, 1, 2, 3]
        ran.clear()
        failing.clear()
        handle.rerun()
        assert handle.wait().status == "SUCCESS"
        assert sorted(ran) == [1, 3]
        assert handle.result(join)["results"] == ["a", "b", "c", "d"]
        progress = handle.view().steps[0].map
        assert progress is not None and progress.created == 4
        ran.clear()
        handle.rerun(from_step="each")
        assert handle.wait().status == "SUCCESS" and sorted(ran) == [0, 1, 2, 3]


def test_a_reference_to_what_is_not_there_ends_its_step_with_a_reason() -> None:
    app = Mainspring("missing")
    wf = app.workflow("missing")

    @wf.step()
    def first() -> dict[str, int]:
        return {"a": 1}

    @wf.step(b=first.result["b"])
    def second(b: int) -> None: ...

    with mainspring.testing.run(app, start=START) as box:
        view = wf.run().wait()
        assert view.status == "FAILED"
        [run] = box.runs_of(second)
        assert run.reason == 'there is no value for {"$from":"first","path":"b"}' and run.attempt == 0


def test_steps_that_are_retried_wait_on_the_clock_of_the_box() -> None:
    app = Mainspring("retried")
    wf = app.workflow("retried", overlap="skip")

    @app.task(retry={"max_attempts": 2, "base": "1h", "jitter": 0})
    def shaky(ctx: Context) -> int:
        if ctx.attempt == 1:
            raise RuntimeError("not yet")
        return ctx.attempt

    done = wf.step(app.task("then")(lambda n: n), n=wf.step(shaky).result, name="done")
    with mainspring.testing.run(app, start=START) as box:
        handle = wf.run()
        box.run_pending()
        assert handle.status() == "RUNNING"
        with pytest.raises(Conflict, match="has not ended"):
            handle.rerun()
        assert box.client.run(wf.run().run_id).status == "SKIPPED"  # overlap
        assert handle.result(done) == 2
        with pytest.raises(Conflict, match="no step has failed"):
            handle.rerun()
        assert box.now.isoformat() > "2026-01-01T00:59"


@pytest.mark.parametrize(("overlap", "new"), [("skip", "SKIPPED"), ("queue", "HELD")])
def test_a_rerun_and_another_run_do_not_overlap(overlap: str, new: str) -> None:
    app = Mainspring("overlapping")
    wf = app.workflow("overlapping", overlap=overlap)

    @app.task(retry={"max_attempts": 2, "base": "1h", "jitter": 0})
    def shaky(ctx: Context) -> None:
        if ctx.attempt == 1:
            raise RuntimeError("not yet")

    wf.step(shaky, name="a")
    with mainspring.testing.run(app, start=START) as box:
        first = wf.run()
        first.wait()
        second = wf.run()
        box.run_pending()
        with pytest.raises(Conflict, match="another run of the workflow is alive"):
            first.rerun("a")
        second.wait()
        first.rerun("a")
        box.run_pending()
        third = wf.run()
        assert (first.status(), third.status()) == ("RUNNING", new)
        first.wait()
        assert third.wait().status == ("SKIPPED" if overlap == "skip" else "SUCCESS")


def test_jobs_that_make_jobs_make_each_once_however_often_they_are_tried() -> None:
    app = Mainspring("makers")

    @app.task
    def made(number: int) -> int:
        return number

    @app.task(retries=2)
    def maker(ctx: Context) -> list[str]:
        ids = [ctx.submit(made, number=number).job_id for number in range(2)]
        ids.append(ctx.submit(made.options(priority="high"), 7).job_id)
        if ctx.attempt < 3:
            raise RuntimeError("after the submissions")
        return ids

    with mainspring.testing.run(app, start=START) as box:
        handle = maker.submit()
        assert len(set(handle.result())) == 3
        box.settle()
        assert sorted(run.result for run in box.runs_of(made)) == [0, 1, 7]


def test_a_batch_ends_with_its_last_job_whatever_became_of_the_others() -> None:
    app = Mainspring("batches")

    @app.task
    def work(number: int) -> int:
        if number == 1:
            raise GiveUp("no")
        return number

    @app.task
    def end(count: int) -> str:
        return f"all {count}"

    with mainspring.testing.run(app, start=START) as box:
        batch = app.batch("imports")
        for number in range(3):
            batch.add(work, number)
        last = batch.then(end, count=len(batch))
        handle = batch.submit()
        assert handle.result(last) == "all 3"
        assert batch.submit().run_id == handle.run_id  # the same jobs
        with pytest.raises(InvalidInput, match="was submitted already"):
            batch.add(work, 3)
        assert [run.status for run in box.runs_of(work)] == ["SUCCESS", "FAILED", "SUCCESS"]


def test_a_long_chain_and_a_wide_layer_end_soon() -> None:
    app = Mainspring("large")
    task = app.task("one")(lambda: None)
    bad = app.task("bad")(lambda: 1 // 0)
    chain, wide = app.workflow("chain"), app.workflow("wide")
    before = chain.step(bad, name="s0", retries=0)
    for number in range(1, 1200):
        before = before >> chain.step(task, name=f"s{number}")
    first = wide.step(task, name="first")
    members = wide.step(task, name="members").map(range=1000)
    first >> members >> wide.step(task, name="last")
    with mainspring.testing.run(app, start=START):
        view = chain.run().wait()
        assert (view.counts, view.next) == ({"FAILED": 1, "SKIPPED": 1199}, "1000")
        assert wide.run().succeed().steps[1].map.succeeded == 1000  # type: ignore[union-attr]


def test_a_mapped_step_counts_no_members_before_it_is_ready_and_after_it_was_skipped() -> None:
    app = Mainspring()
    wf = app.workflow("wide")

    @wf.step()
    @app.task
    def fails() -> None:
        raise GiveUp("no")

    @app.task
    def each(item: int) -> None: ...

    mapped = wf.step(each, item=wf.item).map([1, 2]).after(fails)
    with mainspring.testing.run(app, start=START) as box:
        handle = wf.run()
        before = {step.name: step.map for step in handle.view().steps}
        box.advance("5s")
        after = {step.name: (step.status, step.map) for step in handle.view().steps}
    assert before[mapped.name] is None
    assert after[mapped.name] == ("SKIPPED", None)
