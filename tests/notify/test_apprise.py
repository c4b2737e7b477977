"""Channels of apprise: of allowed schemes, in a child that reaches public addresses only."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

from mainspring.domain.errors import InvalidInput, MainspringError
from mainspring.domain.notify.apprise_urls import NEVER
from mainspring.domain.notify.deliveries import AppriseDelivery
from mainspring.operations.notify.transport import NotSent
from mainspring.roles.apprise import sender as apprise_sender
from mainspring.roles.apprise.sender import AppriseSender, apprise_schemes
from mainspring.roles.assembly import Assembly
from mainspring.roles.notify_guard import notify_guard
from mainspring.roles.notify_transport import NetworkTransport, notify_transport
from tests.worker.http_service import a_service, answer

pytestmark = pytest.mark.anyio

HIDDEN = "s3cr3t-part"
SCHEMES = frozenset({"json", "ntfy", "fcm", "mailto", "growl"})

ESCAPES = """
import ctypes, os, socket, sqlite3, subprocess, sys, syslog
from pathlib import Path
from mainspring.kinds.http.address_guard import AddressGuard
from mainspring.roles.apprise.confinement import Confined, Confinement
key, folder = sys.argv[1:]
udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
Confinement(AddressGuard.from_text("10.0.0.1"), ()).begin()
for escape in (
    lambda: open(key), lambda: os.open(key, os.O_RDONLY), lambda: open(folder + "/new", "w"),
    lambda: os.system("true"), lambda: subprocess.run(["true"]), lambda: os.fork(), lambda: syslog.syslog("x"),
    lambda: socket.create_connection(("localhost", 1)), lambda: socket.socket().connect(("localhost", 1)),
    lambda: udp.sendto(b"x", ("127.0.0.1", 9)), lambda: socket.socket(socket.AF_UNIX).connect("/run/docker.sock"),
    lambda: ctypes.CDLL("libc.so.6"),
):
    try:
        escape()
        print("free")
    except Confined:
        print("confined")
"""


def delivery(url: str) -> AppriseDelivery:
    return AppriseDelivery(url, "job nightly failed", "why: exit code 1\nhttp://x", good=False)


async def not_sent(sender: AppriseSender, url: str) -> NotSent:
    with pytest.raises(NotSent) as error:
        await sender.deliver(delivery(url))
    assert HIDDEN not in str(error.value)
    return error.value


async def test_only_an_instance_administrator_makes_a_channel_of_a_scheme_that_the_server_allows(
    assembly: Assembly, api: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = {"kind": "apprise", "apprise_url": f"ntfy://{HIDDEN}:{HIDDEN}@127.0.0.1:9/{HIDDEN}"}
    refused = await api.put("/v1/channels/push", json=body)
    assert (refused.status_code, refused.json()["field"]) == (422, "apprise_url")
    assert "--apprise-schemes ntfy" in refused.json()["hint"] and HIDDEN not in refused.text

    monkeypatch.setattr(assembly.services.channels, "_transport", notify_transport("127.0.0.1", "ntfy, JSON://"))
    made = await api.put("/v1/channels/push", json=body)
    assert (made.status_code, made.json()["secrets"]) == (201, ["apprise_url"]), made.text
    said = made.text + (await api.get("/v1/channels/push")).text
    tested = (await api.post("/v1/channels/push:test")).json()  # nobody listens
    assert not tested["sent"], tested
    said += json.dumps(tested) + (await api.get("/v1/notifications")).text + (await api.get("/v1/audit")).text
    assert HIDDEN not in said

    other = (await api.post("/v1/tenants", json={"name": "acme"})).json()["admin_token"]["token"]
    stranger = {"Authorization": f"Bearer {other}"}
    forbidden = await api.put("/v1/channels/push", json=body, headers=stranger)
    assert (forbidden.status_code, forbidden.json()["code"]) == (403, "instance_admin_only")
    for url in ("file:///tmp/x", "syslog://x", "SYSLOG://x", "nothing", "://x", "dbus://"):
        bad = await api.put("/v1/channels/bad", json={"kind": "apprise", "apprise_url": url})
        assert (bad.status_code, bad.json()["field"]) == (422, "apprise_url"), url


async def test_a_message_arrives() -> None:
    async with a_service(answer(200)) as service:
        sender = AppriseSender(SCHEMES, "127.0.0.1")
        sent = await sender.deliver(delivery(f"json://127.0.0.1:{service.port}/{HIDDEN}"))
        assert sent.status == 200
        got = json.loads(service.asked[0].body)
        assert (got["title"], got["type"]) == ("job nightly failed", "failure")
        assert got["message"] == "why: exit code 1\nhttp://x"


@pytest.mark.parametrize("status", [404, 500])
async def test_what_the_service_answers_is_said_and_nothing_of_the_address(status: int) -> None:
    async with a_service(answer(status)) as service:
        error = await not_sent(AppriseSender(SCHEMES, "127.0.0.1"), f"json://127.0.0.1:{service.port}/{HIDDEN}")
    assert (error.status, error.final) == (status, status == 404)
    assert str(error) == f"the service answered {status}"


@pytest.mark.slow
async def test_no_private_address_is_called_by_number_by_name_or_by_a_redirect() -> None:
    async with a_service(answer(200)) as private:
        target = f"http://127.0.0.1:{private.port}/"
        async with a_service(answer(302, location=target)) as public:
            guarded = AppriseSender(SCHEMES, None)
            for host in ("2130706433", "localhost", "[::1]"):
                error = await not_sent(guarded, f"json://{host}:{private.port}/{HIDDEN}")
                assert error.final and "not public" in str(error), host
            one_port = AppriseSender(SCHEMES, f"127.0.0.1:{public.port}")
            error = await not_sent(one_port, f"json://127.0.0.1:{public.port}/?redirect=yes")
            assert "not public" in str(error)
            assert public.asked
    assert not private.asked


async def test_no_file_is_read_or_written_and_no_scheme_reaches_the_machine(tmp_path: Path) -> None:
    secret, target = tmp_path / "key.json", tmp_path / "log"
    secret.write_text('{"type": "service_account"}')
    everything = AppriseSender(frozenset({*SCHEMES, *NEVER}), "*")
    for url in (f"file://{target}", "syslog://"):
        assert (await not_sent(everything, url)).final, url
    assert not target.exists()
    await not_sent(everything, f"fcm://project/token?mode=oauth2&keyfile={secret}")  # it would read the file
    shown = subprocess.run(
        [sys.executable, "-c", ESCAPES, str(secret), str(tmp_path)], capture_output=True, text=True, check=True
    )
    assert shown.stdout.split() == ["confined"] * 12, shown.stdout + shown.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["key.json"]


@pytest.mark.slow
async def test_a_service_that_hangs_ends_in_time_and_holds_up_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    never = asyncio.Event()

    async def hang(*_: Any) -> None:
        await never.wait()

    async with a_service(hang) as hanging, a_service(answer(200)) as service:
        sender = AppriseSender(SCHEMES, "127.0.0.1")
        hasty, patient = (
            NetworkTransport(notify_guard("127.0.0.1"), seconds=seconds, apprise=sender) for seconds in (5.0, 60.0)
        )
        slow = f"json://127.0.0.1:{hanging.port}/?rto=60&cto=60"
        stuck = [asyncio.create_task(hasty.deliver(delivery(slow))) for _ in range(3)]
        await patient.deliver(delivery(f"json://127.0.0.1:{service.port}/"))
        for task in stuck:
            with pytest.raises(NotSent, match="no answer within 5 s"):
                await task
        assert not sender._turns and not sender._waiting
        never.set()


def test_schemes_are_checked_and_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    assert apprise_schemes(None) == frozenset()
    assert apprise_schemes("ntfy, Matrix://,") == {"ntfy", "matrix"}
    for bad in ("file", "ntfy,syslog", "a b", "-"):
        with pytest.raises(InvalidInput) as error:
            apprise_schemes(bad)
        assert error.value.field == "apprise_schemes"
    monkeypatch.setattr(apprise_sender, "find_spec", lambda _: None)
    with pytest.raises(MainspringError) as missing:
        apprise_schemes("ntfy")
    assert (missing.value.code, missing.value.hint) == ("extra_missing", "pip install 'mainspring[apprise]'")
