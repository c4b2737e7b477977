"""`mainspring run list --payload KEY=VALUE`."""

from __future__ import annotations

from tests.cli.test_verbs import Call

from .conftest import CannedServer


def test_runs_are_listed_by_values_of_their_payload(server: CannedServer, call: Call) -> None:
    server.says("GET /v1/runs", {"runs": [], "next": None})
    assert call("run", "list", "--payload", "account=42", "--payload", "customer.id=a=b")[0] == 0
    assert server.asked[-1][1] == "limit=20&payload.account=42&payload.customer.id=a%3Db"
    code, _, err = call("run", "list", "--payload", "account")
    assert code == 2 and "is not a key and a value" in err
