"""Channels: what a tenant stores, what nobody sees again, and what a receiver gets."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
from typing import Any

import asyncpg
import httpx
import pytest

from mainspring.domain.notify.channel_kinds import SECRET_FIELDS
from mainspring.roles.assembly import Assembly
from mainspring.roles.notify_guard import notify_guard
from mainspring.roles.notify_transport import NetworkTransport
from tests.worker.http_service import a_service, answer

pytestmark = pytest.mark.anyio

HIDDEN = "s3cr3t-value"
SECRET_URL = f"http://127.0.0.1:9/{HIDDEN}"
CHANNELS: dict[str, dict[str, Any]] = {
    "mail": {
        "kind": "mail", "host": "127.0.0.1", "from": "m@example.com", "to": ["a@example.com"], "user": "u",
        "password": HIDDEN,
    },
    "webhook": {"kind": "webhook", "url": "http://127.0.0.1:9/x", "secret": HIDDEN},
    "slack": {"kind": "slack", "webhook_url": SECRET_URL},
    "teams": {"kind": "teams", "webhook_url": SECRET_URL},
    "discord": {"kind": "discord", "webhook_url": SECRET_URL},
    "telegram": {"kind": "telegram", "bot_token": HIDDEN, "chat_id": "7", "url": "http://127.0.0.1:9"},
    "pagerduty": {"kind": "pagerduty", "routing_key": HIDDEN, "url": "http://127.0.0.1:9"},
    "opsgenie": {"kind": "opsgenie", "api_key": HIDDEN, "url": "http://127.0.0.1:9"},
    "twilio": {
        "kind": "twilio", "account_sid": "AC1", "auth_token": HIDDEN, "from": "+4917012345", "to": ["+4917012346"],
        "url": "http://127.0.0.1:9",
    },
}  # fmt: skip


async def test_a_channel_is_created_changed_read_listed_and_deleted(api: httpx.AsyncClient) -> None:
    body = CHANNELS["webhook"]
    made = await api.put("/v1/channels/oncall", json=body)
    assert (made.status_code, made.headers["etag"]) == (201, '"1"')
    assert made.json()["secrets"] == ["secret"]
    assert (await api.put("/v1/channels/oncall", json=body)).headers["etag"] == '"1"'  # nothing has changed
    changed = await api.put("/v1/channels/oncall", json={**body, "description": "night"}, headers={"If-Match": '"1"'})
    assert (changed.status_code, changed.json()["version"], changed.json()["description"]) == (200, 2, "night")
    late = await api.put("/v1/channels/oncall", json=body, headers={"If-Match": '"1"'})
    assert (late.status_code, late.json()["code"]) == (412, "version_mismatch")
    assert [one["name"] for one in (await api.get("/v1/channels")).json()["channels"]] == ["oncall"]
    assert (await api.get("/v1/channels/oncall")).json() == changed.json()
    assert (await api.delete("/v1/channels/oncall")).status_code == 200
    assert (await api.get("/v1/channels/oncall")).status_code == 404
    assert (await api.delete("/v1/channels/oncall")).json()["code"] == "not_found"


async def test_no_answer_log_line_or_row_that_lists_read_has_a_secret(
    api: httpx.AsyncClient, connection: asyncpg.Connection, capsys: pytest.CaptureFixture[str]
) -> None:
    said = ""
    for name, body in CHANNELS.items():
        made = await api.put(f"/v1/channels/{name}", json=body)
        assert made.status_code == 201, made.text
        said += made.text + (await api.get(f"/v1/channels/{name}")).text
        said += (await api.post(f"/v1/channels/{name}:test")).text  # nobody listens: it fails
    said += (await api.get("/v1/channels")).text + (await api.get("/v1/notifications")).text
    for table in ("channels", "notifications"):
        said += str(await connection.fetch(f"select * from mainspring.{table}"))
    bad = await api.put("/v1/channels/bad", json={"kind": "slack", "webhook_url": f"ftp://{HIDDEN}"})
    said += bad.text + capsys.readouterr().out + capsys.readouterr().err
    assert bad.status_code == 422
    assert HIDDEN not in said
    kept = await connection.fetchval("select count(*) from mainspring.channel_secrets")
    assert kept == len(CHANNELS)


async def test_a_secret_that_is_left_out_is_kept_unless_it_would_go_elsewhere(
    api: httpx.AsyncClient, connection: asyncpg.Connection
) -> None:
    await api.put("/v1/channels/page", json=CHANNELS["opsgenie"])
    rest = {name: value for name, value in CHANNELS["opsgenie"].items() if name not in SECRET_FIELDS}
    kept = await api.put("/v1/channels/page", json={**rest, "description": "night"})
    assert (kept.status_code, kept.json()["secrets"]) == (200, ["api_key"])
    assert HIDDEN in await connection.fetchval("select secrets::text from mainspring.channel_secrets")
    elsewhere = await api.put("/v1/channels/page", json={**rest, "url": "https://evil.example.com"})
    assert (elsewhere.status_code, elsewhere.json()["field"]) == (422, "api_key")
    other = await api.put("/v1/channels/page", json={"kind": "pagerduty"})
    assert (other.status_code, other.json()["field"]) == (422, "routing_key")


REFUSED = [
    ({"kind": "fax"}, "kind"),
    ({"kind": "slack"}, "webhook_url"),
    ({"kind": "slack", "webhook_url": "https://x.example/", "host": "a"}, "host"),
    ({"kind": "webhook", "url": "https://u:p@x.example/", "secret": "s"}, "url"),
    ({"kind": "webhook", "url": "file:///etc/passwd", "secret": "s"}, "url"),
    ({"kind": "webhook", "url": "https://x.example:0x/", "secret": "s"}, "url"),
    ({"kind": "webhook", "url": "https://x.example/", "secret": "a\r\nb"}, "secret"),
    ({**CHANNELS["mail"], "to": ["a@b.c\r\nBcc: x@y.z"]}, "to[0]"),
    ({**CHANNELS["mail"], "to": ["a@b.c> SIZE=1"]}, "to[0]"),
    ({**CHANNELS["mail"], "from": "a\nb@c.d"}, "from"),
    ({**CHANNELS["mail"], "to": []}, "to"),
    ({**CHANNELS["mail"], "tls": "none"}, "tls"),
    ({**CHANNELS["mail"], "port": 70000}, "port"),
    ({**CHANNELS["mail"], "host": "a b"}, "host"),
    ({**CHANNELS["twilio"], "to": ["+491", "+492"]}, "to"),
    ({**CHANNELS["twilio"], "account_sid": "../x"}, "account_sid"),
    ({**CHANNELS["telegram"], "bot_token": "a/b"}, "bot_token"),
    ({"kind": "slack", "webhok_url": "x"}, "webhok_url"),
]  # fmt: skip


async def test_what_cannot_be_a_channel_is_refused_with_its_field(api: httpx.AsyncClient) -> None:
    for body, field in REFUSED:
        refused = await api.put("/v1/channels/x", json=body)
        assert refused.status_code == 422, (body, refused.text)
        assert refused.json()["field"] == field, (body, refused.json())
    for name in ("a%0Ab", "a%20b", "%2E%2E", "a%00"):
        assert (await api.put(f"/v1/channels/{name}", json=CHANNELS["slack"])).status_code in (404, 422), name
    assert (await api.get("/v1/channels")).json()["channels"] == []


async def test_a_webhook_is_signed_and_the_history_has_it(api: httpx.AsyncClient) -> None:
    key = base64.b64encode(b"0123456789abcdef").decode()
    async with a_service(answer(204)) as receiver:
        body = {"kind": "webhook", "url": receiver.url("/hook?x=1"), "secret": f"whsec_{key}"}
        await api.put("/v1/channels/hook", json=body)
        tested = (await api.post("/v1/channels/hook:test")).json()
    assert (tested["sent"], tested["status"]) == (True, 204)
    [asked] = receiver.asked
    headers = asked.headers
    assert (asked.method, asked.target) == ("POST", "/hook?x=1")
    signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + asked.body
    digest = hmac.new(b"0123456789abcdef", signed, hashlib.sha256).digest()
    assert headers["webhook-signature"] == f"v1,{base64.b64encode(digest).decode()}"
    told = json.loads(asked.body)
    assert told["id"] == headers["webhook-id"] == tested["notification_id"]
    assert told["title"] == "channel hook works"
    [seen] = (await api.get("/v1/notifications")).json()["notifications"]
    assert (seen["notification_id"], seen["status"], seen["channel"]) == (told["id"], "SENT", "hook")


async def test_every_kind_that_posts_sends_what_its_service_reads(api: httpx.AsyncClient) -> None:
    async with a_service(answer(200, {"ok": True})) as receiver:
        for name, body in CHANNELS.items():
            if name == "mail":
                continue
            given = {
                key: receiver.url(f"/{name}") if key in ("url", "webhook_url") else value for key, value in body.items()
            }
            assert (await api.put(f"/v1/channels/{name}", json=given)).status_code == 201
            tested = (await api.post(f"/v1/channels/{name}:test")).json()
            assert tested["sent"], (name, tested)
    asked = {one.target.split("/")[1]: one for one in receiver.asked}
    bodies = {name: json.loads(one.body) for name, one in asked.items() if name != "twilio"}
    assert "channel slack works" in bodies["slack"]["text"]
    assert "channel teams works" in json.dumps(bodies["teams"])
    assert bodies["discord"]["allowed_mentions"] == {"parse": []}
    assert (asked["telegram"].target, bodies["telegram"]["chat_id"]) == (f"/telegram/bot{HIDDEN}/sendMessage", "7")
    assert (asked["pagerduty"].target, bodies["pagerduty"]["event_action"]) == ("/pagerduty/v2/enqueue", "resolve")
    assert asked["opsgenie"].headers["authorization"] == f"GenieKey {HIDDEN}"
    assert asked["twilio"].body.startswith(b"From=%2B4917012345&To=%2B4917012346&Body=channel+twilio+works")
    assert asked["twilio"].headers["authorization"].startswith("Basic ")


async def test_a_channel_reaches_no_private_address_unless_the_server_allows_it(
    api: httpx.AsyncClient, assembly: Assembly, monkeypatch: pytest.MonkeyPatch
) -> None:
    guarded = NetworkTransport(notify_guard(None))
    monkeypatch.setattr(assembly.services.channels, "_transport", guarded)
    async with a_service(answer(200)) as receiver:
        hosts = ("127.0.0.1", "localhost", "2130706433")
        for host in hosts:
            url = receiver.url(host=host)
            await api.put("/v1/channels/inside", json={"kind": "webhook", "url": url, "secret": "s"})
            tested = (await api.post("/v1/channels/inside:test")).json()
            assert not tested["sent"]
            assert "allow it with --notify-allow" in tested["error"], host
        mail = {**CHANNELS["mail"], "host": "169.254.169.254"}
        await api.put("/v1/channels/inside", json=mail)
        assert "a metadata address" in (await api.post("/v1/channels/inside:test")).json()["error"]
        assert receiver.asked == []
        dead = (await api.get("/v1/notifications", params={"status": "DEAD"})).json()["notifications"]
        assert len(dead) == len(hosts) + 1


async def test_a_redirect_is_not_followed(api: httpx.AsyncClient) -> None:
    async with a_service(answer(302, location="http://127.0.0.1:1/")) as receiver:
        await api.put("/v1/channels/hook", json={"kind": "webhook", "url": receiver.url(), "secret": "s"})
        tested = (await api.post("/v1/channels/hook:test")).json()
    assert (tested["sent"], tested["status"]) == (False, 302)


async def test_a_receiver_that_hangs_ends_the_test_with_the_reason(
    api: httpx.AsyncClient, assembly: Assembly, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def hang(_: asyncio.StreamWriter) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(
        assembly.services.channels, "_transport", NetworkTransport(notify_guard("127.0.0.1"), seconds=0.05)
    )
    async with a_service(hang) as receiver:
        await api.put("/v1/channels/hook", json={"kind": "webhook", "url": receiver.url(), "secret": "s"})
        tested = (await api.post("/v1/channels/hook:test")).json()
    assert (tested["sent"], tested["error"]) == (False, "no answer within 0.05 s")


async def test_a_receiver_that_repeats_its_request_tells_no_secret(api: httpx.AsyncClient) -> None:
    async def repeat(writer: asyncio.StreamWriter) -> None:
        got = receiver.asked[-1]
        said = f"Cannot {got.method} {got.target} {got.headers.get('authorization')} {got.body.decode()[:300]}"
        writer.write(answer(400, said.encode()))

    async with a_service(repeat) as receiver:
        relay = receiver.url("")
        for name, body in CHANNELS.items():
            if name == "mail":
                continue
            here = {
                field: value.replace("http://127.0.0.1:9", relay) if field in ("url", "webhook_url") else value
                for field, value in body.items()
            }
            assert (await api.put(f"/v1/channels/{name}", json=here)).status_code == 201
            tested = (await api.post(f"/v1/channels/{name}:test")).json()
            assert tested["status"] == 400 and "Cannot POST" in tested["error"], tested
            assert HIDDEN not in tested["error"], tested
            assert base64.b64encode(f"AC1:{HIDDEN}".encode()).decode() not in tested["error"]
