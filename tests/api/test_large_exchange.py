"""An exchange that is read in parts is the same as one that is read in one go."""

from __future__ import annotations

import msgspec
import pytest

from mainspring.api.large_exchange import read_exchange
from mainspring.kernel.ids import uuid7
from mainspring.wire.exchange import ExchangeRequest, Held, Outcome, Progress, QueueShare, WorkerHello

pytestmark = pytest.mark.anyio


async def test_each_field_of_an_exchange_is_read() -> None:
    run_id = uuid7()
    request = ExchangeRequest(
        uuid7(), 7, free=3, wait_ms=5, outcomes=[Outcome(run_id, 1)], inventory=[Held(run_id, 1)], recover=True,
        draining=True, stopped=True, hello=WorkerHello("w", ["q"], ["t"], 1), progress=[Progress(run_id, 1, 1)],
        shares=[QueueShare(1, "q")], room={"t": 1}, unstarted=2, started=[(run_id, 1, 2.5)],
    )  # fmt: skip
    defaults = ExchangeRequest(request.worker_id, 8)
    same = [field for field in request.__struct_fields__ if getattr(request, field) == getattr(defaults, field)]
    assert same == ["worker_id"], "a field is not tested"
    body = msgspec.json.encode(request)
    read, at_once = await read_exchange(body), msgspec.json.decode(body, type=ExchangeRequest)
    assert msgspec.json.encode(read) == msgspec.json.encode(at_once) == body
