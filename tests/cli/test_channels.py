"""`mainspring channel` and `mainspring rule`: what is sent, and to whom."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.sdk.wire_samples import MOMENT, problem

from .conftest import CannedServer

Call = Callable[..., tuple[int, str, str]]


def test_the_address_of_a_webhook_is_not_that_of_the_server(server: CannedServer, call: Call, tmp_path: Path) -> None:
    (tmp_path / "key").write_text("s3cret\n")
    made = {
        "name": "hook", "kind": "webhook", "url": "https://example.com/hook", "version": 1, "secrets": ["secret"],
        "created_at": MOMENT, "updated_at": MOMENT, "updated_by": "admin",
    }  # fmt: skip
    server.says("PUT /v1/channels/hook", made, status=201)
    options = ("--kind", "webhook", "--address", "https://example.com/hook", "--secret-file", str(tmp_path / "key"))
    code, out, err = call("channel", "set", "hook", *options)
    assert (code, err) == (0, "") and "https://example.com/hook" in out and "s3cret" not in out
    body = {"kind": "webhook", "url": "https://example.com/hook", "secret": "s3cret"}
    assert server.asked == [("PUT /v1/channels/hook", "", body)]


def test_what_is_missing_is_named_by_its_option(server: CannedServer, call: Call, tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("s3cret")
    for words, said in (
        (("channel", "set", "x"), "give --kind"),
        (("channel", "set", "x", "--secret-file", str(key)), "give --kind"),
        (("rule", "set", "x", "--to", "a"), "give --on"),
        (("rule", "set", "x", "--on", "failure"), "give --to"),
        (("channel", "set", "x", "--kind", "slack", "--secret-file", "absent"), "absent cannot be read: No such file"),
        (("channel", "set", "x", "--file", "absent"), "absent cannot be read: No such file"),
    ):
        code, _, err = call(*words)
        assert code == 2 and said in err and "Errno" not in err, words
    assert server.asked == []


def test_what_a_kind_needs_is_named_by_its_option(server: CannedServer, call: Call) -> None:
    for kind, field, option in (
        ("slack", "webhook_url", "--secret-file F"), ("mail", "host", "--mail-host H"),
        ("telegram", "chat_id", "--file F with chat_id"),
    ):  # fmt: skip
        refused = problem(422, "invalid_input", f"a channel of kind {kind} needs {field}", field=field)
        server.says("PUT /v1/channels/ops", refused, status=422)
        code, _, err = call("channel", "set", "ops", "--kind", kind)
        assert code == 2 and err.endswith(f"hint: give {option}\n"), err
