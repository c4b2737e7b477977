"""Test an application without a server. It runs in the process of the test, on a clock that the test controls.

    import mainspring.testing

    def test_the_report_runs_each_weekday() -> None:
        with mainspring.testing.run(app, start="2026-01-01T00:00:00Z") as box:
            box.advance("7d")
            assert len(box.runs_of(report)) == 5

For pytest there is the fixture `mainspring_box(app)`, and `mainspring_server(app)` for a real server.
"""

from mainspring.sdk.testing import Box, BoxRun, WorkerLost, run

__all__ = ["Box", "BoxRun", "WorkerLost", "run"]
