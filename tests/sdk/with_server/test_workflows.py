"""Workflows and batches of an application through the SDK, at a real server with a real worker."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from mainspring import InvalidInput, RunFailed
from tests.eventually import until
from tests.sdk.with_server.market import app, nightly, report, reported, resized, work

pytestmark = pytest.mark.slow

Server = Callable[..., Any]
SOON = 60


def states(view: Any) -> dict[str, str]:
    return {step.name: step.status for step in view.steps}


def test_a_workflow_fails_in_the_middle_is_mended_and_rerun_from_there(mainspring_server: Server) -> None:
    client = mainspring_server(app).client
    handle = nightly.run(region="mars", rows=[1, 2, -3])
    failed = handle.wait(SOON)
    assert (failed.status, failed.reason) == ("FAILED", "step load failed")
    assert states(failed) == {
        "extract": "SUCCESS", "resize": "SUCCESS", "load": "FAILED", "report": "SKIPPED", "alarm": "SUCCESS",
    }  # fmt: skip
    by_name = {step.name: step for step in failed.steps}
    assert by_name["report"].reason == "upstream failed: load"
    counts = by_name["resize"].map
    assert counts is not None and (counts.total, counts.succeeded, counts.failed) == (3, 2, 1)
    members = client.workflow_steps(handle.run_id, name="resize", members=True).steps
    assert [(one.index, one.status) for one in members] == [(0, "SUCCESS"), (1, "SUCCESS"), (2, "FAILED")]

    steps = nightly.definition()["steps"]
    mended = [{**one, "payload": {"region": "moon"}} if one["name"] == "load" else one for one in steps]
    client.update_workflow("market-nightly", steps=mended)
    try:
        assert handle.rerun(definition="current").status == "RUNNING"
        view = handle.succeed(timeout=SOON)
    finally:
        client.update_workflow("market-nightly", steps=steps)
    assert (view.reruns, view.counts) == (1, {"SUCCESS": 4, "SKIPPED": 1})
    assert {step.name: step.rerun for step in view.steps} == {
        "extract": 0, "resize": 0, "load": 1, "report": 1, "alarm": 1,
    }  # fmt: skip
    assert states(view)["alarm"] == "SKIPPED"  # nothing failed this time
    assert handle.result(reported) == "2 of 3, loaded moon"


def test_parameters_are_those_of_the_run_and_results_have_their_types(mainspring_server: Server) -> None:
    mainspring_server(app)
    handle = nightly.run(region="us", rows=[7, 8])
    assert handle.result(reported, timeout=SOON) == "2 of 2, loaded us"
    assert handle.result(resized)["results"] == [70, 80]
    with pytest.raises(InvalidInput, match="no parameter"):
        nightly.run(regoin="us")


def test_too_many_failed_members_fail_the_run(mainspring_server: Server) -> None:
    mainspring_server(app)
    handle = nightly.run(rows=[-1, -2, -3, -4])
    with pytest.raises(RunFailed, match="resize"):
        handle.succeed(timeout=SOON)
    [step] = [step for step in handle.view().steps if step.name == "resize"]
    assert step.map is not None and (step.status, step.map.ended) == ("FAILED", 4)


def test_a_batch_ends_with_its_last_job_whatever_became_of_the_others(mainspring_server: Server) -> None:
    mainspring_server(app)
    batch = app.batch("imports")
    for number in range(3):
        batch.add(work, number)
    last = batch.then(report, counts={"succeeded": 2, "total": len(batch)})
    handle = batch.submit()
    assert handle.result(last, timeout=SOON) == "2 of 3, not loaded"
    assert batch.submit().run_id == handle.run_id  # the same jobs
    with pytest.raises(InvalidInput, match="was submitted already"):
        batch.add(work, 3)
    assert handle.view().counts == {"SUCCESS": 3, "FAILED": 1}


def test_a_cancelled_batch_starts_nothing_more(mainspring_server: Server) -> None:
    mainspring_server(app)
    batch = app.batch()
    batch.add(work.options(queue="nobody-works-here"), 5)
    handle = batch.submit()
    until(lambda: handle.status() == "RUNNING")
    view = handle.cancel(reason="wrong region")
    assert (view.status, view.reason) == ("CANCELLED", "wrong region")
    assert set(states(handle.view()).values()) == {"CANCELLED"}
