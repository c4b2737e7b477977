"""Workers send a newer field only to servers that announced it. Replies of servers may contain unknown fields."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from mainspring.domain.job import Spec
from mainspring.domain.schedules.schedule import Schedule
from mainspring.kernel.ids import uuid7
from mainspring.wire.exchange import ExchangeReply, ExchangeRequest, Held, Outcome, WorkerHello
from mainspring.wire.logs import LogReceipt, LogShipment
from mainspring.wire.problems import Problem
from mainspring.wire.protocol import BASE_PROTOCOL, NEWER_FIELDS, WireProtocol
from mainspring.wire.secrets import SecretRef
from mainspring.worker.exchange.server_client import AnswerLost, ExchangeRefused, ServerClient
from mainspring.worker.executors.registry import build_executors
from mainspring.worker.worker import Worker
from tests.operations.waiting import until
from tests.worker.a_worker import QUICK, PatientWatchdog, app

FIELDS = Path(__file__).with_name("fields_of_0.2.0.txt")
TOMORROW = BASE_PROTOCOL + 1
RENEWAL = "python -m tests.upgrades.test_protocol"


class HelloOfTomorrow(WorkerHello, forbid_unknown_fields=True, omit_defaults=True):
    zone: str = ""


class OutcomeOfTomorrow(Outcome, forbid_unknown_fields=True, omit_defaults=True):
    cost: float = 0.0


class RequestOfTomorrow(ExchangeRequest, forbid_unknown_fields=True, omit_defaults=True):
    moods: tuple[str, ...] = ()


PROTOCOL = WireProtocol(
    {("HelloOfTomorrow", "zone"): TOMORROW, ("OutcomeOfTomorrow", "cost"): TOMORROW, ("RequestOfTomorrow", "moods"): 3}
)
HELLO = HelloOfTomorrow("w", ["default"], ["noop"], 4, zone="eu")


def request(seq: int = 1, hello: WorkerHello | None = None) -> RequestOfTomorrow:
    outcomes: list[Outcome] = [OutcomeOfTomorrow(uuid7(), 1, cost=2.5), Outcome(uuid7(), 1)]
    return RequestOfTomorrow(
        uuid7(), seq, outcomes=outcomes, inventory=[Held(uuid7(), 1)], hello=hello, moods=("good",)
    )


def spelt(message: msgspec.Struct) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(message))
    return found


# -- what is sent


def test_a_server_gets_the_fields_that_it_has_announced_and_no_others() -> None:
    whole = request(hello=HELLO)
    before = msgspec.json.encode(whole)
    old = spelt(PROTOCOL.fit(whole, BASE_PROTOCOL))
    assert "moods" not in old and "zone" not in old["hello"] and "cost" not in old["outcomes"][0]
    assert msgspec.json.decode(msgspec.json.encode(old), type=ExchangeRequest).seq == whole.seq
    later = spelt(PROTOCOL.fit(whole, TOMORROW))
    assert "moods" not in later and later["hello"]["zone"] == "eu" and later["outcomes"][0]["cost"] == 2.5
    assert PROTOCOL.fit(whole, 3) is whole
    assert msgspec.json.encode(whole) == before


def test_without_newer_fields_nothing_is_looked_at() -> None:
    plain = ExchangeRequest(uuid7(), 1)
    assert WireProtocol({}).number == BASE_PROTOCOL
    assert WireProtocol({}).fit(plain, BASE_PROTOCOL) is plain


class Peer:
    """A server that announces a protocol and refuses unknown fields, like a real one."""

    def __init__(self, protocol: int = BASE_PROTOCOL) -> None:
        self.protocol = protocol
        self.heard: list[dict[str, Any]] = []

    @property
    def knows(self) -> type[ExchangeRequest]:
        return ExchangeRequest if self.protocol == BASE_PROTOCOL else RequestOfTomorrow

    def answer(self, body: bytes) -> tuple[int, bytes]:
        self.heard.append(msgspec.json.decode(body))
        known = set(self.knows.__struct_fields__)
        if unknown := set(self.heard[-1]) - known:
            problem = Problem("about:blank", "", 422, "unknown_field", f"unknown field {unknown.pop()!r}")
            return 422, msgspec.json.encode(problem)
        reply = {"seq": self.heard[-1]["seq"], "of_the_day_after": [{"x": 1}]}
        if self.protocol != BASE_PROTOCOL:
            reply["protocol"] = self.protocol
        return 200, msgspec.json.encode(reply)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                length = next(int(line[15:]) for line in head.lower().split(b"\r\n") if line[:15] == b"content-length:")
                status, body = self.answer(await reader.readexactly(length))
                writer.write(b"HTTP/1.1 %d X\r\nContent-Length: %d\r\n\r\n%b" % (status, len(body), body))
        except asyncio.IncompleteReadError:
            writer.close()


@asynccontextmanager
async def served(*peers: Peer, protocol: WireProtocol = PROTOCOL) -> Any:
    servers = [await asyncio.start_server(peer.serve, "127.0.0.1", 0) for peer in peers]
    addresses = [f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}" for server in servers]
    client = ServerClient(",".join(addresses), "secret", timeout=60.0, protocol=protocol)
    try:
        yield client, addresses
    finally:
        client.close()
        for server in servers:
            server.close()


@pytest.mark.anyio
async def test_a_field_is_sent_after_the_server_announced_it_and_the_hello_is_repeated() -> None:
    peer = Peer(protocol=3)
    async with served(peer) as (client, _):
        await client.exchange(request(1, HELLO))
        assert "moods" not in peer.heard[0] and "zone" not in peer.heard[0]["hello"]
        assert client.hello_outdated
        await client.exchange(request(2, HELLO))
        assert peer.heard[1]["moods"] == ["good"] and peer.heard[1]["hello"]["zone"] == "eu"
        assert not client.hello_outdated
        await client.exchange(request(3))
        assert not client.hello_outdated


@pytest.mark.anyio
async def test_an_old_server_never_sees_a_newer_field() -> None:
    peer = Peer()
    async with served(peer) as (client, _):
        for seq in range(1, 4):
            await client.exchange(request(seq, HELLO if seq == 1 else None))
            assert not client.hello_outdated
    assert not [heard for heard in peer.heard if "moods" in heard or "zone" in heard.get("hello", {})]


@pytest.mark.anyio
async def test_what_one_server_announced_says_nothing_about_another() -> None:
    new, old = Peer(protocol=3), Peer()
    async with served(new, old) as (client, addresses):
        await client.exchange(request(1, HELLO))
        await client.exchange(request(2, HELLO))
        client.leave(addresses[0])
        await client.exchange(request(3))
        assert "moods" in new.heard[-1] and "moods" not in old.heard[-1]
        assert not client.hello_outdated
    old, new = Peer(), Peer(protocol=3)
    async with served(old, new) as (client, addresses):
        await client.exchange(request(1, HELLO))
        client.leave(addresses[0])
        await client.exchange(request(2))
        assert "moods" not in new.heard[-1]
        assert client.hello_outdated  # the server did not accept all fields of the hello


@pytest.mark.anyio
async def test_a_server_that_goes_back_a_version_blames_no_outcome() -> None:
    """After a refusal the worker would search for the invalid outcome. After a lost answer it sends everything
    again."""
    peer = Peer(protocol=3)
    async with served(peer) as (client, _):
        await client.exchange(request(1))
        peer.protocol = BASE_PROTOCOL
        with pytest.raises(AnswerLost, match="no longer takes what it announced"):
            await client.exchange(request(2))
        await client.exchange(request(3))
        assert "moods" not in peer.heard[-1]


@pytest.mark.anyio
async def test_a_worker_repeats_its_hello_when_the_server_takes_more_of_it() -> None:
    """`labels` represents a newer field."""
    labels_are_new = WireProtocol({("WorkerHello", "labels"): TOMORROW})
    peer, watchdog = Peer(protocol=TOMORROW), PatientWatchdog()
    async with served(peer, protocol=labels_are_new) as (client, _):
        executors = build_executors(app.tasks, slots=1, watchdog=watchdog, kill_grace=0.3, note_progress=print)
        worker = Worker(
            client, watchdog, executors, name="w", queues=["default"], slots=1, labels={"zone": "eu"}, timing=QUICK
        )
        running = asyncio.create_task(worker.run())
        await until(lambda: len(peer.heard) >= 4)
        worker.stop()
        assert await running
    hellos = [heard["hello"].get("labels") for heard in peer.heard if "hello" in heard]
    assert hellos[:2] == [None, {"zone": "eu"}]
    assert "hello" not in peer.heard[-1]


@pytest.mark.anyio
async def test_a_refusal_that_has_nothing_to_do_with_it_stays_one() -> None:
    class Strict(Peer):
        @property
        def knows(self) -> type[ExchangeRequest]:
            return type("Nothing", (msgspec.Struct,), {})  # type: ignore[return-value]

    async with served(Strict()) as (client, _):
        with pytest.raises(ExchangeRefused):
            await client.exchange(request(1))


# -- what is received, and what is stored


def structs_in(kind: Any) -> Iterator[type[msgspec.Struct]]:
    """A struct and all structs within it."""
    seen: set[Any] = set()

    def walk(info: Any) -> Iterator[type[msgspec.Struct]]:
        if isinstance(info, msgspec.inspect.StructType):
            if info.cls in seen:
                return
            seen.add(info.cls)
            yield info.cls
            for field in info.fields:
                yield from walk(field.type)
        for name in ("item_type", "value_type", "key_type", "type"):
            if (part := getattr(info, name, None)) is not None:
                yield from walk(part)
        for part in getattr(info, "types", ()):
            yield from walk(part)

    yield from walk(msgspec.inspect.type_info(kind))


@pytest.mark.parametrize("kind", [ExchangeReply, LogReceipt, Problem, Spec, Schedule])
def test_what_newer_servers_send_and_store_is_ignored_where_it_is_unknown(kind: type[msgspec.Struct]) -> None:
    strict = [
        struct.__name__
        for struct in structs_in(kind)
        if struct.__struct_config__.forbid_unknown_fields and struct is not SecretRef  # it has one key for ever
    ]
    assert strict == []


def what_workers_send() -> str:
    """Every field of the structs in which servers refuse unknown fields."""
    found = {struct for kind in (ExchangeRequest, LogShipment) for struct in structs_in(kind)}
    fields = sorted(f"{struct.__name__} {name}" for struct in found for name in struct.__struct_fields__)
    return "".join(f"{line}\n" for line in fields)


def test_a_field_that_came_later_has_a_number() -> None:
    """0.2.0 knows the fields of the file. Another one goes into NEWER_FIELDS; LogShipment and Held, which is an array,
    stay as they are."""
    base = set(FIELDS.read_text(encoding="utf-8").splitlines())
    today = set(what_workers_send().splitlines())
    numbered = {f"{struct} {field}" for struct, field in NEWER_FIELDS}
    assert base <= today, "servers of 0.2.0 may need the removed field"
    assert today - base == numbered, "a field that 0.2.0 does not know needs a line in wire/protocol.py"
    assert not {line.split()[0] for line in numbered} & {"LogShipment", "LogChunk", "Held"}


if __name__ == "__main__":
    FIELDS.write_text(what_workers_send(), encoding="utf-8")
