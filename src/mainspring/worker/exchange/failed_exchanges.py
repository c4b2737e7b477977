"""What follows from an exchange that failed: what it carried is sent again, and the next one is sent later."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from mainspring.kernel.logs import get_logger
from mainspring.wire.exchange import Progress
from mainspring.worker.exchange.exchange_timing import ExchangeTiming
from mainspring.worker.exchange.flight import Flight
from mainspring.worker.exchange.held_runs import HeldRuns
from mainspring.worker.exchange.progress import ProgressReports
from mainspring.worker.exchange.server_client import AnswerLost, ExchangeRefused, ServerClient, StoreDown
from mainspring.worker.exchange.starts import StartReports
from mainspring.worker.lease_enforcer import LeaseEnforcer

log = get_logger("worker")


class FailedExchanges:
    """`holding` says how many runs the worker holds. What belongs to one incarnation is an argument of the methods."""

    def __init__(
        self,
        server_client: ServerClient,
        lease: LeaseEnforcer,
        progress: ProgressReports,
        starts: StartReports,
        *,
        holding: Callable[[], int],
    ) -> None:
        self._server_client = server_client
        self._lease = lease
        self._progress = progress
        self._starts = starts
        self._holding = holding

    def failed(
        self,
        flight: Flight,
        error: AnswerLost | ExchangeRefused,
        held_runs: HeldRuns,
        timing: ExchangeTiming,
        now: float,
    ) -> bool:
        """Return whether a server refuses this worker, and there is no other one to try."""
        if not isinstance(error, ExchangeRefused):
            self.lost(flight, held_runs, now)
            self._unanswered(flight, error, timing, now)
            return False
        if not error.contents:
            self.lost(flight, held_runs, now, answered=True)
        elif self._find_rejected(flight, error, held_runs, now):
            return False
        self._lease.store_answers(flight.sent, now)
        timing.refused(now, elsewhere=self._server_client.untried, holding=self._holding())
        log.error(
            "the server refuses this worker",
            error=str(error),
            hint=error.problem.hint or "check the token and the address",
        )
        return not self._server_client.untried

    def lost(self, flight: Flight, held_runs: HeldRuns, now: float, *, answered: bool = False) -> None:
        """Send again what it carried. Unless a server `answered` that it rejects it, it may have been carried out."""
        self._starts.put_back(flight.request.started, held_runs.held)
        held_runs.lost(flight, now, answered=answered)
        self._put_progress_back(() if flight.trial else flight.request.progress, held_runs)

    def _unanswered(self, flight: Flight, error: AnswerLost, timing: ExchangeTiming, now: float) -> None:
        timing.failed(now, elsewhere=self._server_client.untried)
        if isinstance(error, StoreDown):
            self._lease.hear_store_down(flight.sent, now)
        elif timing.failures & (timing.failures - 1) == 0:  # the 1st, 2nd, 4th, 8th...: an outage does not fill the log
            log.warning("no answer from the server", error=str(error), failures=timing.failures)

    def _find_rejected(self, flight: Flight, error: ExchangeRefused, held_runs: HeldRuns, now: float) -> bool:
        """Find the entry that makes the server reject the exchange, and go on without it. False if the contents are not
        the cause: the server refuses this worker."""
        self._starts.put_back(flight.request.started, held_runs.held)
        rejection = held_runs.refused(flight, error.problem, now)
        if rejection.not_contents:
            self._put_progress_back(rejection.returned.progress, held_runs)
            return False
        self._lease.store_answers(flight.sent, now)
        rejected = rejection.rejected
        run = {} if rejected is None else held_runs.about(rejected.run_id)
        if rejected is None:
            log.warning(
                "an exchange was rejected; searching for the cause", error=str(error), parts=len(flight.carries)
            )
        elif isinstance(rejected, Progress):
            log.warning("a progress report was rejected; it is dropped", **run, error=str(error))
            if (attempt := held_runs.held.get((rejected.run_id.int, rejected.fence))) is not None:
                self._progress.refused(attempt, now)
        elif rejection.let_go:
            log.error(
                "an outcome was rejected even without its result; the run is given to others when this worker ends",
                **run, error=str(error),
            )  # fmt: skip
        else:
            log.error("an outcome was rejected; reporting the rejection", **run, error=str(error))
        return True

    def _put_progress_back(self, reports: Iterable[Progress], held_runs: HeldRuns) -> None:
        held = held_runs.held
        keys = [(report.run_id.int, report.fence) for report in reports]
        self._progress.put_back(held[key] for key in keys if key in held)
