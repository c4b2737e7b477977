"""--watch: lists that are shown again and again."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from rich.text import Text

from mainspring.cli import connect, watching
from mainspring.domain.errors import Unauthorized, Unavailable
from tests.sdk.wire_samples import problem, run

from .conftest import CannedServer

Call = Callable[..., tuple[int, str, str]]


class Pauses:
    """Counts the pauses instead of waiting, and ends the last one with Ctrl-C."""

    def __init__(self, count: int) -> None:
        self.left = count
        self.seconds: list[float] = []

    def __call__(self, seconds: float) -> None:
        self.seconds.append(seconds)
        self.left -= 1
        if self.left == 0:
            raise KeyboardInterrupt


def page(status: str) -> dict[str, Any]:
    return {"runs": [run(status=status)], "next": None}


def test_a_list_is_shown_again_and_survives_an_outage(
    server: CannedServer, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    down = (503, problem(503, "store_down", "the database is unavailable"))
    server.answers["GET /v1/runs"] = [(200, page("QUEUED")), down, down, (200, page("RUNNING"))]
    monkeypatch.setattr(connect, "_PATIENCE", 0.0)
    pauses = Pauses(4)
    monkeypatch.setattr(watching, "pause", pauses)
    code, out, err = call("runs", "--watch", "--interval", "5s")
    assert code == 130
    assert pauses.seconds == [5, 5, 5, 5]
    assert out.count("RUN  ") == 2 and "QUEUED" in out and "RUNNING" in out
    assert err.count("no answer since") == 1 and "the database is unavailable" in err


def test_json_is_one_line_each_time(server: CannedServer, call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    server.says("GET /v1/runs", page("QUEUED"), page("RUNNING"))
    monkeypatch.setattr(watching, "pause", Pauses(2))
    code, out, err = call("runs", "--watch", "--json")
    assert (code, err) == (130, "")
    assert [json.loads(line)["runs"][0]["status"] for line in out.splitlines()] == ["QUEUED", "RUNNING"]


def test_the_first_answer_must_come(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connect, "_PATIENCE", 0.0)
    code, out, err = call("runs", "--watch", "--url", "http://127.0.0.1:1")
    assert (code, out) == (6, "")
    assert "cannot reach" in err or "refused" in err


@pytest.mark.parametrize(
    "wrong", [["--interval", "1s"], ["--watch", "--interval", "0.1s"], ["--watch", "--interval", "x"]]
)
def test_an_interval_is_checked(server: CannedServer, call: Call, wrong: list[str]) -> None:
    code, _, err = call("runs", *wrong)
    assert (code, "interval" in err) == (2, True)
    assert server.asked == []


def test_a_terminal_shows_one_frame_in_place_of_the_other(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"FORCE_COLOR": "1", "COLUMNS": "60", "LINES": "8", "TERM": "xterm"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(watching, "pause", Pauses(3))
    answers: list[Any] = [3, Unavailable("nobody is there"), 30]

    def read() -> int:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return int(answer)

    code = watching.watch(
        "This list", read, lambda count, width: [Text(f"row {n} of {width}") for n in range(count)], 2
    )
    shown = capsys.readouterr().out
    assert code == 130
    assert shown.count("\x1b[?1049h") == shown.count("\x1b[?1049l") == 1  # the second screen, and back
    assert shown.count("\x1b[?25l") == shown.count("\x1b[?25h") == 1  # the cursor
    before, after = shown.split("\x1b[?1049l")
    assert "This list, every 2 s" in before and "no answer since" in before and "nobody is there" in before
    assert "and 25 more" in before and "row 29" not in before
    assert "row 29 of 60" in after  # the last state stays, whole


def test_a_refusal_ends_the_watch(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setattr(watching, "pause", Pauses(9))
    answers: list[Any] = [1, Unauthorized("the token was revoked")]

    def read() -> int:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return int(answer)

    with pytest.raises(Unauthorized):
        watching.watch("This list", read, lambda *_: [], 2)
    assert "\x1b[?1049l" in capsys.readouterr().out
