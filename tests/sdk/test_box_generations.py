"""In a box, as at a server: ids of ended jobs are used again, and a cancelled recurring job is revived."""

from __future__ import annotations

from datetime import timedelta

import pytest

from mainspring import Context, Mainspring
from mainspring.domain.errors import Conflict
from mainspring.testing import run

app = Mainspring()


@app.task
def note(ctx: Context, fail: bool = False) -> str:
    if fail:
        raise ValueError("no")
    return ctx.idempotency_key


def test_each_generation_has_its_own_keys_and_the_runs_of_all_are_shown() -> None:
    with run(app) as box:
        for generation in (1, 2):
            box.client.submit(task="note", job_id="mine")
            with pytest.raises(Conflict, match="has not ended") as refused:
                box.client.submit(task="note", job_id="mine")
            assert refused.value.code == "job_exists"
            box.run_pending()
            assert box.client.job("mine").generation == generation
        runs = box.client.job_runs("mine").runs
        assert [one.generation for one in runs] == [2, 1]
        assert [one.generation for one in box.client.job_runs("mine", generation=1).runs] == [1]
        later, first = (str(one.result) for one in runs)
        assert later.startswith("mine/2/") and first.count("/") == 1


def test_a_cancelled_recurring_job_is_revived_and_a_one_time_job_is_not() -> None:
    with run(app) as box:
        box.client.submit(task="note", job_id="mine", every="1h")
        with pytest.raises(Conflict, match="it is SCHEDULED"):
            box.client.submit(task="note", job_id="mine", every="1h")
        box.client.cancel_job("mine")
        box.advance(timedelta(hours=3))
        assert box.client.resume("mine").status == "SCHEDULED"
        [gap] = box.client.missed("mine")
        assert (gap.count, gap.reason) == (3, "cancelled")
        box.advance(timedelta(hours=1))
        assert len(box.runs) == 1
        box.client.cancel_job("mine")
        box.client.submit(task="note", job_id="mine", delay="1h")
        assert box.client.job("mine").generation == 2
        box.client.cancel_job("mine")
        with pytest.raises(Conflict, match="was to run once and is CANCELLED"):
            box.client.resume("mine")


def test_a_replay_stays_in_its_generation() -> None:
    with run(app) as box:
        box.client.submit(task="note", job_id="mine", payload={"fail": True}, retries=0)
        [failed] = box.run_pending()
        box.client.submit(task="note", job_id="mine", every="1h")
        again = box.client.retry_run(failed.run_id)
        assert (again.generation, box.client.job("mine").generation) == (1, 2)


def test_the_id_of_a_cancelled_job_is_used_again_for_the_same_time() -> None:
    with run(app) as box:
        for generation in (1, 2, 3):
            box.client.submit(task="note", job_id="mine", delay="1h")
            assert box.client.job("mine").generation == generation
            if generation < 3:
                box.client.cancel_job("mine")
        box.advance("2h")
        assert [one.generation for one in box.client.job_runs("mine").runs] == [3]
