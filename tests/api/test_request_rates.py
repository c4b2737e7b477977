"""A server bounds how often a token and an address call it. What keeps runs alive is not counted."""

from __future__ import annotations

import httpx
import pytest

from mainspring.api.request_rates import RequestRates
from mainspring.domain.errors import InvalidInput, TooManyRequests
from mainspring.domain.rates import parse_rate
from mainspring.kernel.clock import ManualClock
from mainspring.roles.assembly import Assembly
from mainspring.roles.request_rates import request_rates
from tests.api.bookkeeping import problem
from tests.operations.hand_worker import HandWorker

pytestmark = pytest.mark.anyio

ONE = parse_rate("12/m", "rate")  # 2 in ten seconds


def accepted(rates: RequestRates, address: str | None, most: int = 9) -> int:
    for count in range(most):
        try:
            rates.count_address(address)
        except TooManyRequests as refused:
            assert refused.retry_after == 5
            return count
    return most


def test_each_address_and_each_network_has_a_bucket() -> None:
    clock = ManualClock()
    rates = RequestRates(clock, None, ONE)
    assert accepted(rates, "10.0.0.1") == 2 and accepted(rates, "10.0.0.2") == 2
    assert accepted(rates, "2001:db8::1") == 2 and accepted(rates, "2001:db8::2") == 0
    assert accepted(rates, "2001:db8:0:1::1") == 2
    assert accepted(rates, "::ffff:10.0.0.9") == 2 and accepted(rates, "::ffff:10.0.0.8") == 2
    assert accepted(rates, None) == 9  # a socket without addresses
    clock.advance(5.0)
    assert accepted(rates, "10.0.0.1") == 1
    for number in range(30_000):  # from ever more addresses: what is remembered is bounded
        rates.count_address(f"10.{number // 65536}.{number // 256 % 256}.{number % 256}" if number > 99 else None)
    rates.count_token("a", "a")  # has no limit


async def test_a_token_that_calls_too_often_is_refused_and_workers_are_not(
    api: httpx.AsyncClient, assembly: Assembly
) -> None:
    clock, admission = ManualClock(), assembly.app.state.admission
    made = (await api.post("/v1/tokens", json={"role": "viewer", "name": "busy"})).json()["token"]
    pool = (await api.post("/v1/tokens", json={"role": "worker", "name": "pool"})).json()["token"]
    admission.rates = RequestRates(clock, ONE)
    busy = {"Authorization": f"Bearer {made}"}
    for status in (200, 200, 429):
        answer = await api.get("/v1/jobs", headers=busy)
        assert answer.status_code == status
    assert (problem(answer)["code"], answer.headers["retry-after"]) == ("too_many_requests", "5")
    assert (await api.get("/metrics", headers=busy)).status_code == 200
    assert (await api.get("/v1/jobs")).status_code == 200  # another token
    transport = httpx.ASGITransport(app=assembly.app)  # type: ignore[arg-type]
    bearer = {"Authorization": f"Bearer {pool}"}
    async with httpx.AsyncClient(transport=transport, base_url=str(api.base_url), headers=bearer) as client:
        worker = HandWorker(client)
        for _ in range(5):
            await worker.exchange(free=0, hello=None if worker.seq else worker.card)
        admission.rates = RequestRates(clock, None, ONE)
        for _ in range(5):
            await worker.exchange(free=0)
    for status in (401, 401, 429):
        answer = await api.get("/v1/jobs", headers={"Authorization": "Bearer guess"})
        assert answer.status_code == status
    clock.advance(5.0)
    assert (await api.get("/v1/jobs")).status_code == 200


def test_settings_that_are_no_rates_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    assert request_rates(ManualClock()) is None
    monkeypatch.setenv("MAINSPRING_REQUESTS_PER_TOKEN", "often")
    with pytest.raises(InvalidInput) as refused:
        request_rates(ManualClock())
    assert refused.value.field == "MAINSPRING_REQUESTS_PER_TOKEN"
