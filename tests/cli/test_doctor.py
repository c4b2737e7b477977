"""`mainspring doctor`: each finding with its fix, and an exit code by the worst of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from mainspring.kernel.clock import ManualClock
from mainspring.roles.checkup.database import _failover, _limits, check_postgres, database_of
from mainspring.roles.checkup.server import _clock_finding, _tls_finding
from mainspring.store.database import Database
from tests.cli.test_status_and_top import overview

from .conftest import CannedServer

Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def healthy(server: CannedServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> CannedServer:
    monkeypatch.chdir(tmp_path)
    server.says("GET /healthz", {"status": "ok"})
    server.says("GET /readyz", {"status": "ready", "checks": {"database": "ok"}})
    server.says("GET /v1/insights/overview", overview())
    return server


def found(out: str) -> dict[str, tuple[str, str]]:
    """Severity and text by check."""
    findings = json.loads(out)["findings"]
    return {each["check"]: (each["severity"], each["found"]) for each in findings}


def test_a_healthy_server_has_no_warning_of_its_own(healthy: CannedServer, call: Call) -> None:
    _, out, _ = call("doctor", "--json")
    of_server = {check: severity for check, (severity, _) in found(out).items()}
    checks = ("reach", "TLS", "clock", "readiness", "token", "version", "workers")
    assert {check: of_server[check] for check in checks} == dict.fromkeys(checks, "ok")


@pytest.mark.parametrize(
    "route, answer, status, check, severity, code",
    [
        ("GET /healthz", {"status": "no"}, 500, "reach", "error", 6),
        ("GET /readyz", {"status": "not ready", "checks": {"database": "away"}}, 503, "readiness", "error", 6),
        ("GET /v1/insights/overview", overview(version="9.9.9"), 200, "version", "warning", 1),
        ("GET /v1/insights/overview", overview(workers={}), 200, "workers", "warning", 1),
        ("GET /v1/insights/overview", overview(problems=["it is late"]), 200, "problem", "warning", 1),
        (
            "GET /v1/insights/overview",
            {"type": "", "title": "", "status": 401, "code": "unauthorized", "detail": "wrong token"}, 401,
            "token", "error", 6,
        ),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named_with_its_fix(
    healthy: CannedServer, call: Call, route: str, answer: Any, status: int, check: str, severity: str, code: int
) -> None:
    healthy.says(route, answer, status=status)
    exit_code, out, _ = call("doctor", "--json")
    assert found(out)[check][0] == severity and exit_code == code
    exit_code, out, _ = call("doctor")
    lines = out.splitlines()
    place = next(n for n, line in enumerate(lines) if line.split()[:2] == [severity, check])
    assert lines[place + 1].strip().startswith("fix: ") and exit_code == code


def test_a_server_that_is_not_there_is_an_error_and_the_machine_is_checked_all_the_same(
    call: Call, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, _ = call("doctor", "--url", "http://127.0.0.1:1", "--json")
    assert code == 6 and found(out)["reach"][0] == "error" and {"disk", "sandbox", "open files"} <= set(found(out))


def test_clocks_that_differ_are_told_apart_from_the_whole_seconds_of_a_header() -> None:
    clock = ManualClock(datetime(2026, 11, 18, 12, tzinfo=UTC))
    for seconds, severity in ((0, "ok"), (-1, "ok"), (2, "ok"), (10, "warning"), (-10, "warning")):
        told = (clock.wall() - timedelta(seconds=seconds)).strftime("%a, %d %b %Y %H:%M:%S GMT")
        assert _clock_finding(told, clock).severity == severity, seconds


def test_a_certificate_that_ends_soon_is_a_warning() -> None:
    clock = ManualClock(datetime(2026, 11, 18, tzinfo=UTC))
    assert _tls_finding("https://a", {"notAfter": "Nov 20 00:00:00 2026 GMT"}, clock).severity == "warning"
    assert _tls_finding("https://a", {"notAfter": "Nov 20 00:00:00 2027 GMT"}, clock).severity == "ok"
    assert _tls_finding("http://example.com", None, clock).severity == "warning"


@pytest.mark.parametrize(
    "names, synchronous, standbys, archived, severity, words",
    [
        ("*", 1, 1, False, "ok", "loses nothing acknowledged"),
        ("*", 0, 0, False, "error", "writes wait for it"),
        ("", 0, 2, False, "warning", "may lose the last"),
        ("", 0, 0, True, "ok", "archived"),
        ("", 0, 0, False, "warning", "no standby and no archive"),
    ],
)
def test_it_says_what_a_failover_may_lose(
    names: str, synchronous: int, standbys: int, archived: bool, severity: str, words: str
) -> None:
    seen: Any = {
        "synchronous_commit": "on", "synchronous_names": names, "synchronous": synchronous, "standbys": standbys,
        "archived": archived,
    }  # fmt: skip
    finding = _failover(seen)
    assert finding.severity == severity and words in finding.found


def test_limits_that_are_near_are_warnings() -> None:
    near: Any = {"used": 90, "connections": 97, "oldest_transaction": 1_500_000_000, "longest_open": 7200.0}
    far: Any = {"used": 9, "connections": 97, "oldest_transaction": 1_000, "longest_open": None}
    assert [each.check for each in _limits(near)] == ["connections", "wraparound", "open transaction"]
    assert [each.severity for each in _limits(far)] == ["ok"]


@pytest.mark.anyio
async def test_a_database_without_fsync_is_not_durable(database_url: str) -> None:
    """As that of the tests is. A database that does not answer is one finding."""
    by_check = {each.check: each.severity for each in await check_postgres(Database(database_url))}
    assert by_check["durability"] == "error" and by_check["database"] == by_check["schema"] == "ok"
    [away] = await check_postgres(Database("postgresql://nobody@127.0.0.1:1/nothing"))
    assert away.severity == "error" and away.fix


def test_a_pid_file_that_names_another_host_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "postgres").mkdir()
    (tmp_path / "postgres" / "postmaster.pid").write_text("1\nx\n1\n5432\nexample.com\n")
    assert database_of(tmp_path) is None and database_of(tmp_path / "nothing") is None
