"""People on the command line."""

from __future__ import annotations

import json
from typing import Any

from tests.cli.test_verbs import Call

from .conftest import CannedServer

ADA = "0197a6c0-5d1e-7c3a-9d50-2f1f6f0a8b11"


def user(**changes: Any) -> dict[str, Any]:
    return {
        "user_id": ADA, "mail": "ada@example.com", "name": "Ada Lovelace", "state": "active",
        "tenants": [{"tenant": "default", "role": "operator"}], "created_at": "2020-01-01T00:00:00Z", **changes,
    }  # fmt: skip


def test_a_link_is_printed_only_where_it_is_wanted(server: CannedServer, call: Call) -> None:
    made = user(state="invited", path="/ui/#invite=the-code", code="the-code", expires_at="2030-01-01T00:00:00Z")
    server.says("POST /v1/users", made, status=201)
    server.says("POST /v1/users/ada%40example.com:reset", made, status=201)
    invite = ("user", "invite", "ada@example.com", "--name", "Ada Lovelace", "--role", "operator")
    for command in (invite, ("user", "reset", "ada@example.com")):
        before = len(server.asked)
        code, out, err = call(*command)
        assert (code, out) == (2, "") and "--print" in err
        assert len(server.asked) == before, "nothing was done"
        code, out, err = call(*command, "--print")
        assert code == 0 and out.startswith("http") and out.endswith("/ui/#invite=the-code\n")
        assert "ada@example.com" in err and "the-code" not in err
    assert server.asked[before - 1][2] == {"mail": "ada@example.com", "name": "Ada Lovelace", "role": "operator"}
    code, out, _ = call(*invite, "--print", "--json", "--tenant", "acme")
    assert json.loads(out)["url"].endswith("/ui/#invite=the-code")
    assert server.asked[-1][2]["tenant"] == "acme"


def test_people_are_listed_shown_changed_and_removed(server: CannedServer, call: Call) -> None:
    bob = user(user_id="b", mail="bob@example.com", name="Bob", state="invited",
               tenants=[{"tenant": "acme", "role": "viewer", "invited_until": "2020-01-08T00:00:00Z"}])  # fmt: skip
    server.says("GET /v1/users", {"users": [user(), bob], "more": True})
    code, out, err = call("user", "list")
    assert code == 0 and "operator of default" in out and "invited, expired" in out and "only the first" in err + out
    server.says("GET /v1/users/ada%40example.com", user())
    code, out, _ = call("user", "show", "ada@example.com")
    assert code == 0 and "Ada Lovelace" in out and ADA in out
    for verb, said in (("disable", "is disabled"), ("enable", "is enabled")):
        server.says(f"POST /v1/users/ada%40example.com:{verb}", user())
        assert call("user", verb, "ada@example.com")[1] == f"user ada@example.com {said}\n"
    server.says("POST /v1/users/ada%40example.com:role", user(tenants=[{"tenant": "default", "role": "viewer"}]))
    assert call("user", "role", "ada@example.com", "--role", "viewer")[1] == "user ada@example.com: viewer of default\n"
    assert server.asked[-1][2] == {"role": "viewer"}
    server.says("DELETE /v1/users/ada%40example.com", user())
    assert call("user", "remove", "ada@example.com")[1] == "user ada@example.com is removed\n"
