"""HTTP tasks: what is sent, what counts as success, what is kept, and how a call ends early."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import msgspec
import pytest

from mainspring.kernel.config import MAX_RESULT_BYTES
from mainspring.kinds.http.answer import retry_after
from mainspring.kinds.http.call import SuccessRule
from mainspring.kinds.http.json_path import same
from mainspring.wire.execution import Cause, ResourceLimits
from mainspring.worker.execution.attempt import Attempt, AttemptEnding, Stop

from .a_process_executor import SlowSink
from .exchange_server import an_order
from .http_service import Caller, Writer, a_service, an_http_order, answer, run


def result(ending: AttemptEnding) -> Any:
    assert ending.status == "SUCCESS" and ending.result is not None, ending.error
    assert len(memoryview(ending.result)) <= MAX_RESULT_BYTES
    return msgspec.json.decode(ending.result)


def test_a_call_and_its_answer() -> None:
    async def test() -> None:
        async with a_service(answer(201, {"ok": True}, etag='"7"', set_cookie="a=b")) as service:
            ending = await Caller().call(service.url("/hook?key=1"), body={"n": 1}, headers={"X-Key": "k"})
            assert result(ending) == {
                "status": 201,
                "headers": {"content-type": "application/json", "etag": '"7"'},
                "body": {"ok": True},
            }
            [asked] = service.asked
            assert (asked.method, asked.target, asked.body) == ("POST", "/hook?key=1", b'{"n":1}')
            assert asked.headers["x-key"] == "k"
            assert asked.headers["host"] == f"127.0.0.1:{service.port}"

    run(test)


def test_the_headers_of_a_run() -> None:
    async def test() -> None:
        async with a_service(answer()) as service:
            order = an_http_order(service.url(), body="text", order={"fence": 7, "attempt": 3, "job_id": "j-1"})
            await Caller().start(order)[1]
            headers = service.asked[0].headers
            fire = order.scheduled_for.astimezone(UTC).replace(tzinfo=None).isoformat() + "Z"
            assert {name: headers[name] for name in headers if name.startswith("mainspring-")} == {
                "mainspring-job-id": "j-1",
                "mainspring-run-id": str(order.run_id),
                "mainspring-attempt": "3",
                "mainspring-scheduled-for": fire,
                "mainspring-idempotency-key": f"j-1/{fire}",
            }
            assert headers["idempotency-key"] == f"j-1/{fire}"
            span = hashlib.sha256(f"{order.run_id}7".encode()).hexdigest()[:16]
            assert headers["traceparent"] == f"00-{order.run_id.hex}-{span}-01"
            assert re.match(r"Mainspring/\d", headers["user-agent"])
            assert headers["content-type"] == "text/plain; charset=utf-8"

    run(test)


def test_what_the_job_chooses_goes_before_our_defaults() -> None:
    chosen = {"user-agent": "mine", "CONTENT-TYPE": "application/xml", "idempotency-key": "my-key", "Accept": "a/b"}

    async def test() -> None:
        async with a_service(answer()) as service:
            assert (await Caller().call(service.url(), body="<a/>", headers=chosen)).status == "SUCCESS"
            headers = service.asked[0].headers
            assert {name: headers[name.lower()] for name in chosen} == chosen

    run(test)


@pytest.mark.parametrize(
    ("status", "body", "rule", "words"),
    [
        (204, b"", None, None),
        (500, b"", None, "HTTP 500 from GET http://127.0.0.1:PORT/hook"),
        (503, b"try\n later", None, "HTTP 503 from GET http://127.0.0.1:PORT/hook: try later"),
        (404, b"", SuccessRule(status=["2xx", 404]), None),
        (200, b"", SuccessRule(status=[202]), "HTTP 200"),
        (302, b"", SuccessRule(status=["3xx"]), None),
        (200, {"ok": True}, SuccessRule(json="$.ok"), None),
        (200, {"ok": False}, SuccessRule(json="$.ok"), None),
        (200, {"ok": True}, SuccessRule(json="$.ok", equals=True), None),
        (200, {"ok": 1}, SuccessRule(json="$.ok", equals=True), "but $.ok is 1, not true"),
        (200, {"ok": None}, SuccessRule(json="$.ok", equals=None), None),
        (200, {"no": 1}, SuccessRule(json="$.ok"), "but $.ok finds nothing"),
        (200, [{"s": "a"}, {"s": "b"}], SuccessRule(json="$[*].s", equals="b"), None),
        (200, [{"s": "a"}, {"t": 1}], SuccessRule(json="$[?@.s=='a'].s", equals="a"), None),
        (200, b"<p>", SuccessRule(json="$.ok"), "the body is not JSON"),
        (500, {"ok": True}, SuccessRule(json="$.ok"), "HTTP 500"),
        (500, {"ok": True}, SuccessRule(status=[500], json="$.ok", equals=True), None),
    ],
)
def test_the_success_rule(status: int, body: Any, rule: SuccessRule | None, words: str | None) -> None:
    async def test() -> None:
        async with a_service(answer(status, body)) as service:
            ending = await Caller().call(service.url(), success=rule)
            if words is None:
                assert ending.status == "SUCCESS", ending.error
            else:
                assert ending.status == "FAILED" and ending.error is not None
                assert words.replace("PORT", str(service.port)) in ending.error
                assert ending.cause == Cause(http_status=status)

    run(test)


@pytest.mark.parametrize("status", [400, 401, 403, 404, 405, 410, 422])
def test_a_request_at_fault_is_not_worth_another_try(status: int) -> None:
    async def test() -> None:
        async with a_service(answer(status)) as service:
            assert not (await Caller().call(service.url())).retry

    run(test)


@pytest.mark.parametrize("status", [408, 409, 425, 429, 500, 502, 503, 504])
def test_other_failures_are(status: int) -> None:
    async def test() -> None:
        async with a_service(answer(status, retry_after="7")) as service:
            ending = await Caller().call(service.url())
            assert ending.retry and ending.retry_after == 7.0

    run(test)


NOW = datetime(2026, 11, 15, 12, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "120"}, 120.0),
        ({"retry-after": "99999999"}, 86400.0),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "-5"}, None),
        ({"retry-after": "1.5"}, None),
        ({"retry-after": format_datetime(NOW + timedelta(seconds=90), usegmt=True)}, 90.0),
        ({"retry-after": format_datetime(NOW - timedelta(seconds=90), usegmt=True)}, 0.0),
        # A service whose clock is an hour behind ours means 30 seconds all the same.
        (
            {
                "date": format_datetime(NOW - timedelta(hours=1), usegmt=True),
                "retry-after": format_datetime(NOW - timedelta(hours=1) + timedelta(seconds=30), usegmt=True),
            },
            30.0,
        ),
    ],
)
def test_retry_after(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after(headers, NOW) == seconds


def test_equality_is_that_of_json() -> None:
    assert same({"a": [1, 2.0, None]}, {"a": [1.0, 2, None]})
    assert not same(True, 1) and not same(0, False) and not same([1], [True])
    assert not same({"a": 1}, {"a": 1, "b": 2}) and not same([1], [1, 2]) and not same("1", 1)


def test_no_answer_names_the_error_and_may_be_tried_again() -> None:
    async def hang_up(writer: Writer) -> None:
        writer.close()

    async def garbage(writer: Writer) -> None:
        writer.write(b"220 smtp ready\r\n\r\n")

    async def half(writer: Writer) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf")
        writer.close()

    async def test() -> None:
        async with a_service(hang_up) as service:
            ending = await Caller().call(service.url())
            assert ending.retry and ending.cause == Cause(errors=["RemoteProtocolError", "TransportError"])
            assert ending.error is not None and f"GET {service.url()}: RemoteProtocolError" in ending.error
            port = service.port
        for faulty in (garbage, half):
            async with a_service(faulty) as service:
                ending = await Caller().call(service.url())
                assert ending.retry and ending.cause is not None and "RemoteProtocolError" in ending.cause.errors
        ending = await Caller().call(f"http://127.0.0.1:{port}/")
        assert ending.retry and ending.cause == Cause(errors=["ConnectError", "NetworkError", "TransportError"])

    run(test)


def test_a_name_that_nobody_has() -> None:
    async def nobody(host: str, port: int) -> list[str]:
        raise OSError("Name or service not known")

    async def test() -> None:
        ending = await Caller(look_up=nobody).call("http://nobody.invalid/")
        assert ending.retry and ending.cause == Cause(
            errors=["NameNotFound", "ConnectError", "NetworkError", "TransportError"]
        )
        assert ending.error is not None and "cannot resolve nobody.invalid: Name or service not known" in ending.error

    run(test)


def test_a_big_body_is_cut_and_marked() -> None:
    async def endless(writer: Writer) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\n\r\n")
        while True:
            writer.write(b"\x00\xff" * 32768)
            await writer.drain()

    async def test() -> None:
        async with a_service(endless) as service:
            kept = result(await Caller().call(service.url()))
            assert kept["body"].endswith("\n[cut]") and kept["body_bytes"] == 1024 * 1024
            await service.hung_up.wait()
            kept = result(await Caller().call(service.url(), order={"limits": ResourceLimits(output=10)}))
            assert kept["body"] == "\ufffd" * 10 + "\n[cut]"
            ending = await Caller().call(service.url(), success=SuccessRule(json="$.ok"))
            assert ending.error is not None and "was not looked up: the body has more than 1MiB" in ending.error
        big = {"ok": True, "pad": "ä" * 100_000}
        async with a_service(answer(200, big)) as service:
            kept = result(await Caller().call(service.url(), success=SuccessRule(json="$.ok", equals=True)))
            assert kept["body"].startswith('{"ok": true') and kept["body"].endswith("\n[cut]")
        # Bytes that stand for no character at all: what was read of them is still not the whole.
        async with a_service(
            answer(200, b"\x1b(B" * 100_000, content_type="text/plain; charset=iso-2022-jp")
        ) as service:
            assert result(await Caller().call(service.url()))["body"].lstrip("\ufffd") == "\n[cut]"

    run(test)


def test_text_that_is_no_json_is_kept_as_text() -> None:
    async def test() -> None:
        for body, kind, kept in (
            (b"hello", "text/plain", "hello"),
            ("grün".encode("latin-1"), "text/plain; charset=latin-1", "grün"),
            (b"a\x00b", "text/plain; charset=no-such", "a\ufffdb"),
            ("grün".encode("utf-16"), "text/plain; charset=utf-16", "grün"),
            # Python has codecs for these, which take minutes, or make characters that are none.
            (b"b9c" * 10_000, "text/plain; charset=punycode", "b9c" * 10_000),
            (b"+2AA-", "text/plain; charset=utf-7", "+2AA-"),
            (b"\\ud800", "text/plain; charset=unicode_escape", "\\ud800"),
            (b"YQ==", "text/plain; charset=base64", "YQ=="),
            (b"{broken", "application/json", "{broken"),
            (b'{"n": 1234567890123456789012}', "application/problem+json", {"n": 1234567890123456789012}),
            (b"", "application/json", None),
        ):
            async with a_service(answer(200, body, content_type=kind)) as service:
                assert result(await Caller().call(service.url()))["body"] == kept

    run(test)


def test_cancelling_in_the_middle_of_an_answer_closes_the_connection() -> None:
    begun = asyncio.Event()

    async def slow(writer: Writer) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf")
        begun.set()

    async def test() -> None:
        async with a_service(slow) as service:
            caller = Caller()
            attempt, ending = caller.start(an_http_order(service.url()))
            await begun.wait()
            caller.runner.stop(attempt, Stop.CANCEL)
            assert (await ending).status == "CANCELLED"
            await service.hung_up.wait()
            assert attempt.kill is None and not caller.runner.active

    run(test)


def test_a_body_that_drips_runs_into_the_timeout() -> None:
    async def drip(writer: Writer) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 100000\r\n\r\n")
        while not writer.is_closing():
            writer.write(b"x")
            await asyncio.sleep(0.02)

    async def test() -> None:
        async with a_service(drip) as service:
            ending = await Caller().call(service.url(), order={"timeout": 3.0})
            assert (ending.status, ending.error, ending.retry) == ("FAILED", "timed out after 3s", True)
            await service.hung_up.wait()

    run(test)


def test_a_service_that_reads_nothing_cannot_hold_a_cancelled_call() -> None:
    async def test() -> None:
        connected = asyncio.Event()

        async def deaf(_: asyncio.StreamReader, writer: Writer) -> None:
            writer.transport.pause_reading()  # type: ignore[attr-defined]
            connected.set()

        server = await asyncio.start_server(deaf, "127.0.0.1", 0, limit=1024)
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
        caller = Caller()
        attempt, ending = caller.start(an_http_order(url, body="x" * 50_000_000))
        await connected.wait()
        caller.runner.stop(attempt, Stop.CANCEL)
        assert (await ending).status == "CANCELLED"
        server.close()

    run(test)


def test_killing_all_ends_every_call() -> None:
    async def silent(writer: Writer) -> None:
        await asyncio.Event().wait()

    async def test() -> None:
        async with a_service(silent) as service:
            caller = Caller()
            started = [caller.start(an_http_order(service.url())) for _ in range(3)]
            while len(service.asked) < 3:
                await asyncio.sleep(0)
            assert caller.runner.fence_off()  # True: no process has to end for it
            for attempt, ending in started:
                assert attempt.fenced and (await ending).status == "FAILED"

    run(test)


def test_connections_are_kept_and_a_spoiled_one_is_not_used_again() -> None:
    async def closing(writer: Writer) -> None:
        writer.write(answer(200, connection="close"))

    async def too_much(writer: Writer) -> None:
        writer.write(answer(200, b"a") + answer(200, b"not for you"))

    async def test() -> None:
        async with a_service(answer(200, b"a"), answer(200, b"b"), closing, too_much, answer(200, b"c")) as service:
            caller = Caller()
            bodies = [result(await caller.call(service.url()))["body"] for _ in range(5)]
            assert bodies == ["a", "b", None, "a", "c"]
            assert service.connections == 3
            await caller.call(service.url(), order={"max_attempts": 1})
            assert service.connections == 4  # one try only: not on a connection that may be dying
            caller.executor.close()

    run(test)


def test_the_call_may_stand_in_the_payload() -> None:
    async def test() -> None:
        async with a_service(answer()) as service:
            order = an_order("http", payload={"url": service.url("/new"), "body": [1]})
            assert (await Caller().start(order)[1]).status == "SUCCESS"
            assert (service.asked[0].method, service.asked[0].body) == ("POST", b"[1]")

    run(test)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({}, "an http run needs a call"),
        ({"payload": {"url": "ftp://x/"}}, "is not an address"),
        ({"payload": {"urll": "http://x/"}}, "the payload is not an HTTP call"),
    ],
)
def test_a_run_without_a_call_fails_for_good(fields: dict[str, Any], words: str) -> None:
    async def test() -> None:
        ending = await Caller().start(an_order("http", **fields))[1]
        assert ending.status == "FAILED" and not ending.retry and words in (ending.error or "")

    run(test)


@pytest.mark.parametrize("name", ["memory", "cpu", "processes", "files", "disk"])
def test_a_limit_without_effect_fails_the_run(name: str) -> None:
    async def test() -> None:
        ending = await Caller().call("http://127.0.0.1:1/", order={"limits": ResourceLimits(**{name: 10**8})})
        assert (ending.error, ending.retry) == (f"limits.{name} has no effect on an http task", False)

    run(test)


class Lines:
    """A log sink that remembers."""

    full = False

    def __init__(self) -> None:
        self.text = ""
        self.finished = False

    async def room(self) -> None: ...

    def write(self, data: bytes) -> None:
        assert not self.finished
        self.text += data.decode()

    async def finish(self) -> None:
        self.finished = True


def test_a_call_that_has_succeeded_does_not_time_out_while_its_log_is_stored() -> None:
    sink = SlowSink()

    def open_log(attempt: Attempt) -> SlowSink:
        attempt.log = sink
        return sink

    async def test() -> None:
        async with a_service(answer(200)) as service:
            caller = Caller(open_log=open_log)
            attempt, ending = caller.start(an_http_order(service.url()))
            await sink.finishing.wait()
            caller.runner.stop(attempt, Stop.TIMEOUT)
            assert (await ending).status == "SUCCESS"

    run(test)


def test_each_request_is_a_line_in_the_log_without_its_secrets() -> None:
    sinks: dict[tuple[int, int], Lines] = {}

    def open_log(attempt: Attempt) -> Lines:
        attempt.log = sinks.setdefault(attempt.key, Lines())
        return sinks[attempt.key]

    async def silent(writer: Writer) -> None:
        await asyncio.Event().wait()

    async def test() -> None:
        async with a_service(answer(307, location="/b?secret=2"), answer(200, b"12345")) as service:
            caller = Caller(open_log=open_log)
            await caller.call(service.url("/a?secret=1"), body={}, headers={"Authorization": "secret"})
            [sink] = sinks.values()
            base = service.url("")
            assert re.fullmatch(
                rf"POST {base}/a -> 307 in \d+ ms, 0 bytes\nPOST {base}/b -> 200 in \d+ ms, 5 bytes\n", sink.text
            )
            assert sink.finished
            await caller.call("http://10.0.0.5/x?secret=3")
            async with a_service(silent) as unanswered:
                attempt, ending = caller.start(an_http_order(unanswered.url("/slow?secret=4")))
                while not unanswered.asked:
                    await asyncio.sleep(0)
                caller.runner.stop(attempt, Stop.CANCEL)
                assert (await ending).status == "CANCELLED"
            assert re.fullmatch(r"GET .*/slow -> interrupted after \d+ ms\n", sinks[attempt.key].text)
            assert all(sink.finished for sink in sinks.values())
            assert "secret" not in json.dumps([sink.text for sink in sinks.values()])

    run(test)
