"""Options about TLS and the database's password: mistakes are told before anything is sent or started."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from mainspring.roles.up import UpOptions, server_program, worker_program
from mainspring.store.database import Database

from .conftest import CannedServer

Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def token_file(tmp_path: Path) -> str:
    (tmp_path / "token").write_text("secret")
    return str(tmp_path / "token")


@pytest.mark.parametrize("verb", ["jobs", "worker"])
def test_a_token_is_not_sent_in_clear_to_another_machine(call: Call, token_file: str, verb: str) -> None:
    for url in ("http://192.0.2.1:8700", "https://192.0.2.1,http://192.0.2.1"):
        code, _, err = call(verb, "--url", url, "--token-file", token_file)
        assert code == 2
        assert "is plain HTTP to another machine" in err and "--insecure-http" in err


def test_the_options_apply_to_one_command(server: CannedServer, call: Call, tmp_path: Path) -> None:
    server.says("GET /v1/jobs", {"jobs": [], "next": None})
    code, _, err = call("jobs", "--insecure-http", "--url", server.url)
    assert code == 0, err
    assert "MAINSPRING_INSECURE_HTTP" not in os.environ
    code, _, err = call("jobs", "--ca", str(tmp_path / "missing.pem"))
    assert code == 2 and "cannot read the CA file" in err
    assert "MAINSPRING_CA" not in os.environ


def test_a_server_does_not_serve_other_machines_in_clear(call: Call, tmp_path: Path) -> None:
    for verb in ("server", "up"):
        more = ("--database-url", "postgresql://nobody@127.0.0.1:1/none") if verb == "server" else ()
        code, _, err = call(verb, "--host", "0.0.0.0", "--data", str(tmp_path / "data"), *more)
        assert code == 2
        assert "--tls-cert" in err and "--insecure-http" in err
        assert not (tmp_path / "data").exists()


def test_up_names_a_ca_file_that_cannot_be_read(call: Call, tmp_path: Path) -> None:
    code, _, err = call("up", "--ca", str(tmp_path / "missing.pem"), "--data", str(tmp_path / "data"))
    assert code == 2 and "cannot read the CA file" in err
    assert not (tmp_path / "data").exists()


def test_a_password_on_the_command_line_is_warned_about(call: Call) -> None:
    shown, secret = "postgresql://a@127.0.0.1:1/x", "postgresql://a:secret@127.0.0.1:1/x"
    assert "--database-url-file" not in call("migrate", "--database-url", shown)[2]
    err = call("migrate", "--database-url", secret)[2]
    assert "`ps` shows the password" in err and "--database-url-file" in err and "secret" not in err


def test_the_database_url_can_come_from_a_file(call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MAINSPRING_DATABASE_URL", raising=False)
    file = tmp_path / "url"
    code, _, err = call("migrate", "--database-url-file", str(file))
    assert code == 2 and "cannot read the file" in err
    file.write_text("")
    code, _, err = call("migrate", "--database-url-file", str(file))
    assert code == 2 and "is empty" in err
    file.write_text("postgresql://a:secret@127.0.0.1:1/x\n")
    code, _, err = call("migrate", "--database-url-file", str(file))
    assert "nothing listens on 127.0.0.1:1 (database 'x', role 'a')" in err
    assert "secret" not in err and "`ps`" not in err
    code, _, err = call("migrate", "--database-url-file", str(file), "--database-url", "postgresql://b@127.0.0.1:1/x")
    assert code == 2 and "given twice" in err


def test_the_worker_of_up_does_not_get_the_way_to_the_database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = ("MAINSPRING_DATABASE_URL", "MAINSPRING_DATABASE_URL_FILE", "MAINSPRING_DIRECT_URL")
    for name in (*given, "MAINSPRING_DIRECT_URL_FILE", "PGPASSWORD", "PGPASSFILE"):
        monkeypatch.setenv(name, "secret")
    options = UpOptions(
        data=tmp_path, host="127.0.0.1", port=8700, database=None, app=None, postgres_bin=None, slots=None,
        queues=None, log_level="info", ca="/etc/ca.pem",
    )  # fmt: skip
    program = worker_program(options)
    assert "secret" not in program.env.values()
    assert program.argv[program.argv.index("--ca") + 1] == "/etc/ca.pem"
    assert "password" not in " ".join(server_program(options, Database("postgresql://a:password@b/c")).argv)
