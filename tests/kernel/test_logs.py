"""Log lines: their content and their destination."""

from __future__ import annotations

import contextvars
import io
import json
import re
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from mainspring.kernel import logs
from mainspring.kernel.logs import PacedLog, bind_log_context, configure_logs, get_logger

log = get_logger("node")


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """The lines that a process with these settings writes while `speak` runs. The settings are restored."""

    def run(speak: Callable[[], None], **settings: Any) -> str:
        stream = io.StringIO()
        monkeypatch.setattr(sys, "stderr", stream)
        monkeypatch.setattr(logs, "_sink", logs._sink)

        def process() -> None:
            configure_logs(role="server", **settings)
            speak()

        contextvars.copy_context().run(process)
        return stream.getvalue()

    return run


def test_a_line_is_one_json_object_with_its_fields_and_the_context(written: Callable[..., str]) -> None:
    def speak() -> None:
        bind_log_context(node="n1")
        log.warning("lease lost", shard=7, where=io)

    line = json.loads(written(speak))
    assert line.pop("timestamp").endswith("Z")
    assert line == {
        "module": "node",
        "shard": 7,
        "where": repr(io),
        "event": "lease lost",
        "role": "server",
        "node": "n1",
        "level": "warning",
    }


def test_what_is_below_the_level_is_not_said(written: Callable[..., str]) -> None:
    def speak() -> None:
        log.debug("a detail")
        log.info("news")
        log.error("trouble")

    assert [json.loads(line)["event"] for line in written(speak, level="info").splitlines()] == ["news", "trouble"]
    assert [json.loads(line)["event"] for line in written(speak, level="error").splitlines()] == ["trouble"]


def test_an_error_brings_its_traceback_without_local_variables(written: Callable[..., str]) -> None:
    def speak() -> None:
        token = "ms_" + "secret"
        try:
            raise ValueError(len(token))
        except ValueError as error:
            log.error("request failed", exc_info=error)
        log.error("no traceback", exc_info=None)

    for log_format in ("json", "text"):
        text = written(speak, log_format=log_format)
        assert "ValueError: 9" in text
        assert "ms_secret" not in text
    first, second = map(json.loads, written(speak, log_format="json").splitlines())
    assert first["exception"].startswith("Traceback (most recent call last):")
    assert "exc_info" not in first
    assert "exception" not in second


def test_words_after_the_stream_was_closed_go_to_the_process_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    stream, own = io.StringIO(), io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(sys, "__stderr__", own)
    monkeypatch.setattr(logs, "_sink", logs._sink)
    contextvars.copy_context().run(partial(configure_logs, role="server"))
    stream.close()
    log.info("still here")
    assert json.loads(own.getvalue())["event"] == "still here"


class Untold:
    def __repr__(self) -> str:
        raise RuntimeError("not me")


@pytest.mark.parametrize("log_format", ["json", "text"])
def test_no_value_can_keep_a_line_from_being_said(written: Callable[..., str], log_format: str) -> None:
    loop: dict[str, object] = {}
    loop["again"] = loop
    for value, told in (
        (Untold(), "Untold"),
        ({(1, 2): 3}, "(1, 2)"),
        (loop, "again"),
        (b"\xff\n", "xff"),
        ("\udc80\n", "udc80"),
    ):
        text = written(partial(log.error, "trouble", value=value, exc_info=ValueError("why")), log_format=log_format)
        assert told in text and "trouble" in text and "ValueError: why" in text
        if log_format == "json":
            assert json.loads(text)["event"] == "trouble"


def test_a_line_that_cannot_be_written_stops_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    with Path("/dev/full").open("w") as full:
        monkeypatch.setattr(logs, "_sink", logs._Sink(full, logs._as_json, 0))
        log.error("lease lost: killing all runs")
        with suppress(OSError):
            full.close()


def test_a_process_without_stderr_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "__stderr__", None)
    monkeypatch.setattr(logs, "_sink", logs._Sink(None, logs._as_json, 0))
    log.error("nobody hears this")


def test_a_text_line_has_the_time_of_day_the_process_the_event_and_its_fields(written: Callable[..., str]) -> None:
    def speak() -> None:
        log.info("worker starts", name="a b", slots=16, share=1 / 3)
        log.warning("leases lost", shards="0-127")
        log.detail("descriptors", limit=20)
        log.diagnostic("event loop stalls", stack="...")

    first, second = written(speak, log_format="text").splitlines()
    assert re.fullmatch(r"\d\d:\d\d:\d\d  server              worker starts  name='a b' slots=16 share=0.333333", first)
    assert second[8:] == "  server     warning: leases lost  shards=0-127", (
        "without colours, the level is a word, in a column of its own"
    )
    details = ("descriptors", "event loop stalls")
    assert all(event in written(speak, log_format="text", level="debug") for event in details)
    *_, detail, diagnostic = written(speak, log_format="json").splitlines()
    assert ("descriptors" in detail and '"info"' in detail) and ("stalls" in diagnostic and '"warning"' in diagnostic)


def test_a_line_that_many_can_have_at_once_is_paced(written: Callable[..., str]) -> None:
    times = iter([0.0, 1.0, 4.9, 5.0])
    paced = PacedLog(log, every=5.0, now=lambda: next(times))

    def speak() -> None:
        for path in "abcd":
            paced.warning("the database is unavailable", path=path)

    first, second = map(json.loads, written(speak).splitlines())
    assert first["path"] == "a" and "more_before" not in first
    assert second["path"] == "d" and second["more_before"] == 2
