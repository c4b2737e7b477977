"""Rates and circuit breakers in a box: the same rules as in a server, on the clock of the test."""

from __future__ import annotations

from datetime import timedelta

import pytest

import mainspring.testing
from mainspring import Mainspring
from mainspring.sdk.testing.box import Box

START = "2026-01-01T00:00:00Z"


@pytest.fixture
def app() -> Mainspring:
    app = Mainspring("rates")
    app.broken = True  # type: ignore[attr-defined]

    @app.task(rate_limit={"rate": "1/m", "burst": 2})
    def send() -> None: ...

    @app.task(circuit_breaker={"failures": 2, "open_for": "10m"}, retries=0)
    def call() -> None:
        if app.broken:  # type: ignore[attr-defined]
            raise RuntimeError("down")

    @app.task(rate="1/m", retry={"max_attempts": 2, "backoff": "constant", "base": 1, "jitter": 0})
    def flaky() -> None:
        raise RuntimeError("no")

    return app


def states(box: Box) -> list[str]:
    return [run.status for run in box.client.runs().runs[::-1]]


def test_runs_start_at_their_rate(app: Mainspring) -> None:
    with mainspring.testing.run(app, start=START) as box:
        ids = [app.tasks["send"].submit().job_id for _ in range(4)]
        assert states(box) == ["QUEUED", "QUEUED", "HELD", "HELD"]
        assert box.client.run(ids[2]).reason == "waiting for its turn under the rate of task send: 1/m"
        box.run_pending()
        assert states(box) == ["SUCCESS", "SUCCESS", "HELD", "HELD"]
        box.advance(timedelta(seconds=60))
        assert states(box) == ["SUCCESS"] * 3 + ["HELD"]
        box.advance(timedelta(minutes=10))
        started = [run.started_at for run in box.runs]
        assert [(moment - started[0]).total_seconds() for moment in started if moment and started[0]] == [0, 0, 60, 120]


def test_each_attempt_spends_a_token(app: Mainspring) -> None:
    with mainspring.testing.run(app, start=START, raise_errors=False) as box:
        app.tasks["flaky"].submit()
        box.advance(timedelta(seconds=59))
        [run] = box.client.runs().runs
        assert (run.status, run.attempt_number) == ("HELD", 1)
        box.advance(timedelta(seconds=2))
        assert box.client.runs().runs[0].status == "FAILED"


def test_a_breaker_opens_probes_and_closes(app: Mainspring) -> None:
    with mainspring.testing.run(app, start=START, raise_errors=False) as box:
        for _ in range(5):
            app.tasks["call"].submit()
        box.run_pending()
        assert states(box) == ["FAILED", "FAILED", "HELD", "HELD", "HELD"]
        [breaker] = box.client.breakers().breakers
        assert (breaker.task, breaker.state, breaker.failed, breaker.held) == ("call", "open", 2, 3)
        box.advance(timedelta(minutes=10))
        assert states(box) == ["FAILED"] * 3 + ["HELD"] * 2
        app.broken = False  # type: ignore[attr-defined]
        box.advance(timedelta(minutes=10))
        assert states(box) == ["FAILED"] * 3 + ["SUCCESS"] * 2
        assert box.client.breakers().breakers[0].state == "closed"


def test_a_breaker_can_be_reset(app: Mainspring) -> None:
    with mainspring.testing.run(app, start=START, raise_errors=False) as box:
        for _ in range(3):
            app.tasks["call"].submit()
        box.run_pending()
        app.broken = False  # type: ignore[attr-defined]
        [breaker] = box.client.breakers().breakers
        assert box.client.reset_breaker(breaker.breaker_id).state == "closed"
        box.run_pending()
        assert states(box) == ["FAILED", "FAILED", "SUCCESS"]
