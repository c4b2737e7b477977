"""Job files with secrets, channels, rules and quotas: applied as one, the same again changes nothing, and no value of a
secret is in a plan, an export or the audit."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from mainspring.kernel.clock import ManualClock
from mainspring.kernel.config import Timing
from mainspring.operations.secrets.master_keys import new_key
from mainspring.roles.assembly import assemble
from mainspring.store.database import Database
from mainspring.wire.files import FILE_KINDS
from tests.conftest import TOKEN

pytestmark = pytest.mark.anyio

VALUE, OTHER, HOOK = "correct horse battery", "another horse battery", "https://chat.example/hook/abc"
SECRET = {"value": VALUE, "queues": ["reports"]}
CHAT = {"kind": "slack", "webhook_url": HOOK, "description": "the team"}
MAIL = {"kind": "mail", "host": "mail.example", "from": "a@example.com", "to": ["b@example.com"]}
RULE = {
    "on": ["failure"], "to": ["chat"], "group_wait": "10s", "labels": {"team": "billing"},
    "quiet": {"from": "22:00", "to": "06:00"}, "escalate": {"after": "15m", "to": ["mail"]},
}  # fmt: skip
JOB = {
    "schedule": {"cron": "@daily"}, "command": "true", "queue": "reports", "env": {"DB": {"$secret": "db-password"}},
    "notify": [{"on": ["failure"], "to": ["chat"]}],
}  # fmt: skip
ALL: dict[str, dict[str, Any]] = {
    "rules": {"billing": RULE}, "jobs": {"report": JOB}, "channels": {"chat": CHAT, "mail": MAIL},
    "secrets": {"db-password": SECRET}, "quotas": {"acme": {"concurrent_runs": 20, "tokens": 25}},
}  # fmt: skip


class Files:
    """The server, as the owner of some files."""

    def __init__(self, api: httpx.AsyncClient) -> None:
        self.api = api
        self.texts = ""  # of all answers

    async def send(self, files: dict[str, dict[str, Any]], verb: str = "apply", **more: Any) -> httpx.Response:
        objects = [
            {"kind": kind, "id": name, "body": body} for kind, found in files.items() for name, body in found.items()
        ]
        answer = await self.api.post(f"/v1/files:{verb}", json={"owner": "billing", "objects": objects, **more})
        self.texts += answer.text
        return answer

    async def changes(self, files: dict[str, dict[str, Any]], verb: str = "apply", **more: Any) -> dict[str, Any]:
        answer = await self.send(files, verb, **more)
        assert answer.status_code == 200, answer.text
        return {f"{one['kind']}/{one['id']}": one for one in answer.json()["changes"] if one["action"] != "unchanged"}

    async def exported(self) -> dict[str, dict[str, Any]]:
        found: dict[str, dict[str, Any]] = {}
        for kind in FILE_KINDS:
            answer = await self.api.post("/v1/files:export", json={"kind": kind, "owner": "billing"})
            self.texts += answer.text
            found |= {kind: {one["id"]: one["body"] for one in answer.json()["objects"]}}
        return {kind: bodies for kind, bodies in found.items() if bodies}


@pytest.fixture
async def files(where: Database) -> AsyncIterator[Files]:
    key = new_key()

    async def read() -> str:
        return key

    assembly = await assemble(where, ManualClock(), chance=lambda: 0.5, timing=Timing(lease_ttl=600.0), read_keys=read)
    transport = httpx.ASGITransport(app=assembly.app)  # type: ignore[arg-type]
    headers = {"Authorization": f"Bearer {TOKEN}"}
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8700", headers=headers) as client:
        assert (await client.post("/v1/tenants", json={"name": "acme"})).status_code == 201
        yield Files(client)
    await assembly.close()


async def test_all_kinds_are_planned_applied_changed_exported_and_pruned(files: Files) -> None:
    planned = await files.changes(ALL, "plan")
    assert {one["action"] for one in planned.values()} == {"create"} and len(planned) == 6
    assert (await files.api.get("/v1/secrets")).json()["secrets"] == []
    assert await files.changes(ALL) == planned
    assert await files.changes(ALL) == {}
    kept = await files.exported()
    assert kept["secrets"] == {"db-password": {"queues": ["reports"]}}
    assert kept["channels"]["chat"] == {"kind": "slack", "description": "the team"}
    assert kept["rules"] == ALL["rules"]
    assert kept["quotas"] == ALL["quotas"]
    assert await files.changes(kept) == {}  # secret values that a file leaves out stay

    changed = {
        **ALL,
        "secrets": {"db-password": {"value": OTHER}},
        "channels": {"chat": {**CHAT, "webhook_url": HOOK + "2"}, "mail": {**MAIL, "port": 2525}},
        "rules": {"billing": {**RULE, "group_wait": "20s"}},
        "quotas": {"acme": {"concurrent_runs": 30}},
    }
    fields = {
        name: {one["field"]: (one["before"], one["after"]) for one in change["fields"]}
        for name, change in (await files.changes(changed)).items()
    }
    hidden = ("(hidden)", "(hidden, another value)")
    assert fields == {
        "secrets/db-password": {"queues": (["reports"], None), "value": hidden},
        "channels/chat": {"webhook_url": hidden}, "channels/mail": {"port": (None, 2525)},
        "rules/billing": {"group_wait": ("10s", "20s")},
        "quotas/acme": {"concurrent_runs": (20, 30), "tokens": (25, None)},
    }  # fmt: skip
    assert (await files.api.get("/v1/secrets/db-password")).json()["version"] == 2
    assert await files.changes(changed) == {}

    refused = await files.send({"jobs": {"report": JOB}, "channels": changed["channels"]}, prune=True)
    assert (refused.status_code, refused.json()["code"]) == (409, "secret_in_use") and "report" in refused.text
    assert await files.changes(changed, "plan") == {}
    assert {one["action"] for one in (await files.changes({}, prune=True)).values()} == {"remove"}
    assert await files.exported() == {}
    assert (await files.api.get("/v1/channels")).json()["channels"] == []
    usage = (await files.api.get("/v1/tenants/acme/usage")).json()
    assert all(quota["limit"] is None for quota in usage["quotas"])
    audit = await files.api.get("/v1/audit", params={"limit": 100})
    assert audit.status_code == 200
    for value in (VALUE, OTHER, HOOK):
        assert value not in files.texts + audit.text


async def test_what_is_wrong_changes_nothing_and_says_no_value(files: Files) -> None:
    wrong = {
        "secrets": {"short": {"value": "hunter2"}, "new": {}, "bad name": {"value": VALUE}},
        "channels": {"chat": {"kind": "slack", "webhook_url": "chat.example/hunter2"}, "other": {"kind": "pager"}},
        "rules": {"r": {"on": ["failure"], "to": ["nobody"]}},
        "quotas": {"acme": {"tokens": 0}, "nobody": {"tokens": 1}},
    }
    refused = await files.send(wrong)
    assert refused.status_code == 422
    found = {error["field"] for error in refused.json()["errors"]}
    assert {"objects[0].value", "objects[6].tokens"} <= found, found
    right = {"secrets": {"new": {}}, "rules": wrong["rules"], "quotas": {"nobody": {"tokens": 1}}}
    refused = await files.send(right)
    assert {error["code"] for error in refused.json()["errors"]} == {"invalid_input", "unknown_channel", "not_found"}
    assert await files.exported() == {} and "hunter2" not in files.texts


async def test_only_an_instance_administrator_sets_quotas(files: Files) -> None:
    made = (await files.api.post("/v1/tenants", json={"name": "other"})).json()["admin_token"]["token"]
    files.api.headers["Authorization"] = f"Bearer {made}"
    refused = await files.send({"quotas": {"other": {"tokens": 1000}}})
    assert [error["code"] for error in refused.json()["errors"]] == ["instance_admin_only"]
    assert await files.exported() == {}
