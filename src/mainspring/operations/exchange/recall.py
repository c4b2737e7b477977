"""Recall: ask a busy worker to return unstarted runs, because an idle one that waits here could start them."""

from __future__ import annotations

from mainspring.kernel.logs import get_logger
from mainspring.operations.claim.long_poll import LongPolls
from mainspring.operations.exchange.exchange import Exchange

log = get_logger("exchange")

_PAUSE = 0.1  # seconds until a worker that returned nothing is asked again
_NEVER = float("inf")


def recall_unstarted(exchange: Exchange, long_polls: LongPolls, now: float) -> float:
    """Put into the reply how many unstarted runs to return, if others could start them. Return when to ask again. The
    worker decides which runs it returns, and may return none."""
    worker, waiter = exchange.worker, exchange.waiter
    next_try = worker.recalled_at + _PAUSE
    if now < next_try:
        return next_try if long_polls.has_idle_for(waiter) else _NEVER
    exchange.reply.recall = long_polls.reserve_recall(waiter, now, now + _PAUSE)
    if not exchange.reply.recall:
        return _NEVER
    worker.recalled_at = now
    log.debug("recalling runs for idle workers", worker=str(waiter.worker_id), runs=exchange.reply.recall)
    return now
