"""`--http-allow`: an invalid list is rejected before anything starts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from mainspring.roles.up import UpOptions, worker_program

from .conftest import CannedServer

Call = Callable[..., tuple[int, str, str]]


@pytest.mark.parametrize("by", ["option", "environment"])
def test_up_names_the_bad_entry(call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by: str) -> None:
    if by == "environment":
        monkeypatch.setenv("MAINSPRING_HTTP_ALLOW", "10.0.0.1/8")
    option = ["--http-allow", "10.0.0.1/8"] if by == "option" else []
    code, _, err = call("up", "--data", str(tmp_path / "data"), *option)
    assert code == 2
    assert ("--http-allow" if by == "option" else "http_allow") in err and "10.0.0.1/8" in err
    assert not (tmp_path / "data").exists()


def test_a_worker_names_the_bad_entry(server: CannedServer, call: Call) -> None:
    code, _, err = call("worker", "--http-allow", "10.0.0.0/8,hooks internal")
    assert code == 2
    assert "'hooks internal' is not an address" in err
    assert server.asked == []


def test_the_worker_of_up_gets_the_list_and_what_else_is_its_own(tmp_path: Path) -> None:
    options = UpOptions(
        data=tmp_path, host="127.0.0.1", port=8700, database=None, app=None, postgres_bin=None, slots=None,
        queues=None, log_level="info", http_allow="10.0.0.0/8", prune_schedules=True,
    )  # fmt: skip
    argv = worker_program(options).argv
    assert argv[argv.index("--http-allow") + 1] == "10.0.0.0/8"
    assert "--prune" in argv
