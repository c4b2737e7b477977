"""Tenants and tokens on the command line. Only the secret goes to stdout, so that it can be redirected into a file."""

from __future__ import annotations

import json
from typing import Any

from tests.cli.test_verbs import Call

from .conftest import CannedServer

ONE = "0197a6c0-5d1e-7c3a-9d50-2f1f6f0a8b11"


def token(**changes: Any) -> dict[str, Any]:
    return {
        "token_id": ONE, "name": "pool", "role": "worker", "tenants": "own", "tenant": "default",
        "created_at": "2020-01-01T00:00:00Z", "expires_at": None, "revoked_at": None, **changes,
    }  # fmt: skip


def tenant(name: str, number: int = 2, **changes: Any) -> dict[str, Any]:
    return {"tenant_id": number, "name": name, "created_at": "2020-01-01T00:00:00Z", **changes}


def test_tenant_add_prints_the_admin_token_and_nothing_else_on_stdout(server: CannedServer, call: Call) -> None:
    made = tenant("acme", admin_token=token(role="admin", token="ms_secret"))
    server.says("POST /v1/tenants", made, status=201)
    code, out, err = call("tenant-add", "acme")
    assert (code, out) == (0, "ms_secret\n")
    assert "tenant acme" in err and "not shown again" in err and "ms_secret" not in err
    assert server.asked[-1] == ("POST /v1/tenants", "", {"name": "acme"})
    code, out, _ = call("tenant-add", "acme", "--json")
    assert json.loads(out)["admin_token"]["token"] == "ms_secret"


def test_tenants_are_listed(server: CannedServer, call: Call) -> None:
    server.says("GET /v1/tenants", {"tenants": [tenant("default", 1), tenant("acme")]})
    code, out, _ = call("tenants")
    assert code == 0
    assert "default" in out and "acme" in out


def test_quotas_are_set_and_shown_with_their_use(server: CannedServer, call: Call) -> None:
    use = [
        {"quota": "tokens", "limit": 10, "used": 8, "near": True},
        {"quota": "payload_bytes", "limit": None, "used": None, "near": False},
    ]
    view = {"tenant": "acme", "quotas": use, "warnings": ["8 of 10"], "version": 3, "updated_by": "ann"}
    server.says("PUT /v1/tenants/acme/quotas", view)
    code, out, _ = call("tenant", "quotas", "acme", "--tokens", "10", "--stored-jobs", "none")
    assert code == 0 and server.asked[-1][2] == {"tokens": 10, "stored_jobs": None}
    lines = [line.split() for line in out.splitlines()]
    assert ["tokens", "8", "10", "80", "%", "used"] in lines and ["payload_bytes", "-", "none"] in lines
    server.says("GET /v1/tenants", {"tenants": [tenant("acme")]})
    server.says("GET /v1/tenants/acme/usage", view)
    code, out, _ = call("tenant", "quotas", "--json")
    assert code == 0 and json.loads(out)["quotas"] == use
    code, _, err = call("tenant", "quotas", "acme", "--tokens", "many")
    assert code == 2 and "--tokens" in err


def test_token_add_says_what_it_is_for_and_how_long(server: CannedServer, call: Call) -> None:
    server.says("POST /v1/tokens", token(tenants="all", tenant=None, token="ms_secret"), status=201)
    code, out, err = call("token-add", "pool", "--role", "worker", "--all-tenants")
    assert (code, out) == (0, "ms_secret\n")
    assert ONE in err and "worker of every tenant" in err and "until it is revoked" in err
    assert server.asked[-1][2] == {"name": "pool", "role": "worker", "tenants": "all"}
    server.says("POST /v1/tokens", token(expires_at="2030-01-01T00:00:00Z", token="ms_secret"), status=201)
    code, _, err = call("token-add", "ci", "--role", "admin", "--expires-in", "30d")
    assert (code, "valid until 20" in err) == (0, True)
    assert server.asked[-1][2] == {"name": "ci", "role": "admin", "expires_in": "30d"}
    code, _, err = call("token-add", "ci")
    assert code == 2 and "--role" in err


def test_token_add_for_another_tenant_says_whose_it_is(server: CannedServer, call: Call) -> None:
    server.says("POST /v1/tokens", token(role="admin", tenant="acme", token="ms_secret"), status=201)
    code, out, err = call("token-add", "again", "--role", "admin", "--tenant", "acme")
    assert (code, out) == (0, "ms_secret\n")
    assert "admin of tenant acme" in err
    assert server.asked[-1][2] == {"name": "again", "role": "admin", "tenant": "acme"}


def test_tokens_show_whether_they_are_valid(server: CannedServer, call: Call) -> None:
    rows = [
        token(name="forever"),
        token(name="later", expires_at="2999-01-01T00:00:00Z", tenants="all"),
        token(name="over", expires_at="2021-01-01T00:00:00Z"),
        token(name="gone", revoked_at="2021-01-01T00:00:00Z"),
    ]
    server.says("GET /v1/tokens", {"tokens": rows})
    code, out, _ = call("tokens")
    lines = {line.split()[1]: line for line in out.splitlines()[1:]}
    assert code == 0
    assert "until revoked" in lines["forever"]
    assert "all" in lines["later"] and "expires in" in lines["later"]
    assert "expired" in lines["over"] and "revoked" in lines["gone"]


def test_token_revoke_names_what_it_revoked_and_passes_on_a_refusal(server: CannedServer, call: Call) -> None:
    server.says(f"POST /v1/tokens/{ONE}:revoke", token(revoked_at="2030-01-01T00:00:00Z"))
    assert call("token-revoke", ONE)[:2] == (0, f"token pool ({ONE}) is revoked\n")
    refusal = {
        "type": "", "title": "", "status": 409, "code": "last_admin", "detail": "the last admin token",
        "hint": "make another one first",
    }  # fmt: skip
    server.says(f"POST /v1/tokens/{ONE}:revoke", refusal, status=409)
    code, _, err = call("token-revoke", ONE)
    assert (code, "make another one first" in err) == (4, True)


def session(session_id: str, **changes: Any) -> dict[str, Any]:
    moments = dict.fromkeys(("signed_in_at", "last_seen_at", "ends_at"), "2030-01-01T00:00:00Z")
    return {"session_id": session_id, "token_id": ONE, "name": "ada", "role": "viewer", **moments, **changes}


def test_sessions_are_listed_and_ended_by_the_end_of_their_id(server: CannedServer, call: Call) -> None:
    other = "0197a6c0-5d1e-7c3a-9d50-2f1f6f0a8b22"
    server.says("GET /v1/sessions", {"sessions": [session(ONE), session(other, name="bob")], "more": True})
    code, out, err = call("sessions")
    assert (code, [line.split()[1] for line in out.splitlines()[1:3]]) == (0, ["ada", "bob"])
    assert "the newest come first" in out + err
    server.says(f"POST /v1/sessions/{other}:end", session(other, name="bob"))
    assert call("session-end", other[-8:])[:2] == (0, f"session {other} of bob has ended\n")
    code, out, _ = call("session-end", other, "--json")
    assert (code, json.loads(out)["name"]) == (0, "bob")


def test_workers_shows_which_are_shared(server: CannedServer, call: Call) -> None:
    from tests.cli.test_workers import worker

    server.says("GET /v1/workers", {"workers": [worker(ONE, "pool-1", shared=True)]})
    assert "all tenants" in call("workers")[1]


def test_open_prints_a_link_that_can_be_copied(server: CannedServer, call: Call) -> None:
    link = {"code": "c0de", "path": "/ui/#code=c0de", "expires_at": "2030-01-01T00:00:00Z"}
    server.says("POST /v1/session/links", link, status=201)
    for arguments in ((), ("--json",)):
        code, out, err = call("open", *arguments)
        assert (code, out) == (2, "") and "--print" in err, "a log would keep the link"
    assert server.asked == [], "no link was made"
    code, out, err = call("open", "--print")
    assert code == 0
    assert out.startswith("http://127.0.0.1:") and out.endswith("/ui/#code=c0de\n")
    assert "once" in err and "c0de" not in err
    code, shown, _ = call("open", "--json", "--print")
    assert json.loads(shown) == {"url": out.strip(), "expires_at": "2030-01-01T00:00:00Z"}


def test_token_add_narrows_the_token(server: CannedServer, call: Call) -> None:
    server.says("POST /v1/tokens", token(role="operator", token="ms_secret"), status=201)
    code, _, _ = call(
        "token", "add", "on-call", "--role", "operator", "--queue", "a", "--queue", "b", "--task", "t", "--label",
        "team=pay=ments", "--no-payloads", "--address", "10.0.0.0/8",
    )  # fmt: skip
    assert code == 0
    assert server.asked[-1][2] == {
        "name": "on-call", "role": "operator", "queues": ["a", "b"], "tasks": ["t"], "labels": {"team": "pay=ments"},
        "payloads": False, "addresses": ["10.0.0.0/8"],
    }  # fmt: skip
    code, _, err = call("token", "add", "on-call", "--role", "operator", "--label", "team")
    assert code == 2 and "K=V" in err


def test_lists_of_jobs_and_runs_filter_by_their_creator(server: CannedServer, call: Call) -> None:
    for noun in ("job", "run"):
        server.says(f"GET /v1/{noun}s", {f"{noun}s": [], "next": None})
        assert call(noun, "list", "--created-by", "ci")[0] == 0
        assert "created_by=ci" in server.asked[-1][1]
