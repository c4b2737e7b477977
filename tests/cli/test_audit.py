"""`mainspring audit`: the list, JSON lines, and the verification of the chain."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from mainspring.domain.audit import FIRST_HASH, StoredEntry, entry_hash, link_hash
from tests.cli.test_verbs import Call

from .conftest import CannedServer

AT = datetime(2026, 7, 1, 12, tzinfo=UTC)
ENTRY: dict[str, Any] = {
    "entry_id": str(UUID(int=1)), "at": AT.isoformat(), "by": "ci\u202e", "source": "api", "operation": "jobs.update",
    "kind": "job", "id": "report", "before": {"queue": "a", "env": {"X": "1", "Y": "2"}},
    "after": {"queue": "b", "env": {"X": "1", "Y": "3"}, "payload": {"digest": "0123456789abcdef", "bytes": 9}},
}  # fmt: skip


def a_chain(number: int) -> list[dict[str, Any]]:
    links, previous = [], FIRST_HASH
    for seq in range(1, number + 1):
        entry = StoredEntry(
            UUID(int=seq), AT, 1, "api", None, None, "ci", "admin", None, None, "queues.pause", "queue", f"q{seq}",
            '{"paused":false}', '{"paused":true}',
        )  # fmt: skip
        own = entry_hash(entry)
        previous = link_hash(previous, seq, own)
        fields = {name: getattr(entry, name) for name in StoredEntry.__struct_fields__}
        shown = {**fields, "entry_id": str(entry.entry_id), "at": AT.isoformat()}
        links.append(
            {
                "seq": seq,
                "entry_id": str(entry.entry_id),
                "entry_hash": own.hex(),
                "hash": previous.hex(),
                "entry": shown,
            }
        )
    return links


def page(links: list[dict[str, Any]], head: dict[str, Any], next_seq: int | None = None, **more: Any) -> dict[str, Any]:
    return {"links": links, "head": {"seq": head["seq"], "hash": head["hash"]}, "next_seq": next_seq, **more}


def test_the_list_shows_what_differs_and_escapes_names(server: CannedServer, call: Call) -> None:
    server.says("GET /v1/audit", {"entries": [ENTRY], "next": None})
    _, out, _ = call("audit", "list", "--kind", "job", "--id", "report")
    assert "queue: a -> b, env.Y: 2 -> 3, payload: digest 01234567" in out
    assert "ci\\u202e" in out and "env.X" not in out
    assert server.asked[-1][1] == "kind=job&id=report&limit=20"


def test_the_export_has_one_line_for_each_change_of_all_pages(server: CannedServer, call: Call) -> None:
    server.says("GET /v1/audit", {"entries": [ENTRY], "next": "abc"}, {"entries": [ENTRY], "next": None})
    lines = call("audit", "export")[1].splitlines()
    assert [json.loads(line)["id"] for line in lines] == ["report", "report"]
    assert "cursor=abc" in server.asked[-1][1]


def test_a_whole_chain_is_verified_over_its_pages(server: CannedServer, call: Call) -> None:
    links = a_chain(4)
    since = "2026-07-01T12:00:00Z"
    server.says(
        "GET /v1/audit/chain", page(links[:2], links[3], 3), page(links[2:], links[3], unlinked=2, unlinked_since=since)
    )
    code, out, _ = call("audit", "verify")
    assert code == 0 and "the chain is whole: 4 links" in out
    assert f"head 4:{links[3]['hash']}" in out
    assert "2 changes since 2026-07-01 12:00:00+00:00 are not linked yet" in out


def test_a_broken_link_is_named(server: CannedServer, call: Call) -> None:
    links = a_chain(3)
    links[1]["entry"]["actor"] = "eve"
    server.says("GET /v1/audit/chain", page(links, links[2]))
    code, out, err = call("audit", "verify")
    assert code == 1 and "the chain is broken" in out
    assert f"link 2: the entry {UUID(int=2)} was changed" in err
    found = json.loads(call("audit", "verify", "--json")[1])
    assert found["problems"] == [f"link 2: the entry {UUID(int=2)} was changed"]
    code, _, err = call("audit", "verify", "--head", "seven")
    assert code == 2 and "is not a head of the chain" in err
