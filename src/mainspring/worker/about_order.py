"""What every log line of a worker about a run says."""

from __future__ import annotations

from mainspring.kernel.logs import Fields, about_run
from mainspring.wire.exchange import RunOrder


def about(order: RunOrder) -> Fields:
    return about_run(order.tenant, order.job_id, order.run_id, order.attempt)
