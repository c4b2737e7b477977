"""What comes with a repository belongs to the user after a clone. It must not say where tokens and jobs go, and its
tokens and its database must not become those of the user's server.

Needs: git.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import asyncpg
import pytest

from mainspring.cli.exit_codes import NOT_ALLOWED
from mainspring.cli.main import main
from mainspring.domain.errors import Forbidden
from mainspring.kernel.data_folder import is_recorded, record_folder
from mainspring.roles.token import ensure_admin_token
from mainspring.roles.up import MAINSPRING
from mainspring.sdk.client.client import Client
from mainspring.sdk.client.connection import find_connection
from mainspring.store import tokens

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="needs git")

SECRET = "ssh-ed25519 AAAA-of-the-victim"
OWN_TOKEN = "ms_of-the-victim"
Make = Callable[[Path], None]
Clone = Callable[[Make], Path]


@pytest.fixture
def attacker() -> Iterator[tuple[str, list[str]]]:
    """A server of somebody else, and what it was sent: request lines and headers."""
    heard: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            heard.append(f"{self.requestline}\n{self.headers}")
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.end_headers()
            self.wfile.write(b'{"queues": [], "jobs": [], "next_cursor": null}')

        do_GET = do_POST = _answer  # noqa: N815 - names of the standard library

        def log_message(self, *_: object) -> None: ...

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}", heard
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Clone:
    """Clones what `make` has put into a repository, and goes there with an environment without our variables."""
    for name in [name for name in os.environ if name.startswith("MAINSPRING_")]:
        monkeypatch.delenv(name)
    home = tmp_path / "home"
    home.mkdir()
    (home / "id_ed25519").write_text(f"{SECRET}\n")
    monkeypatch.setenv("HOME", str(home))

    def git(folder: Path, *arguments: str) -> None:
        identity = ("-c", "user.name=x", "-c", "user.email=x@x", "-c", "init.defaultBranch=main")
        subprocess.run(["git", "-C", str(folder), *identity, *arguments], check=True, capture_output=True)

    def cloned(make: Make) -> Path:
        origin = tmp_path / "origin"
        origin.mkdir()
        git(origin, "init")
        make(origin)
        git(origin, "add", "--force", ".")
        git(origin, "commit", "--message", "x")
        git(tmp_path, "clone", str(origin), "project")
        monkeypatch.chdir(tmp_path / "project")
        return tmp_path / "project"

    return cloned


def data_folder(url: str, token: str = "ms_of-the-attacker") -> Make:
    def make(origin: Path) -> None:
        (origin / ".mainspring").mkdir()
        (origin / ".mainspring/server.json").write_text(json.dumps({"url": url, "pid": 1}))
        (origin / ".mainspring/admin-token").write_text(f"{token}\n")
        (origin / ".mainspring/folder-id").write_text("0" * 64)

    return make


def settings(**values: object) -> Make:
    lines = [f"{key} = {json.dumps(value)}" for key, value in values.items()]
    return lambda origin: (origin / "mainspring.toml").write_text("\n".join(lines)) and None


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    code = main(arguments)
    return code, capsys.readouterr().err


@pytest.mark.parametrize("verb", [("queues",), ("submit", "--command", "x"), ("worker",), ("workflow", "list")])
def test_a_data_folder_that_came_along_is_not_used(
    clone: Clone, attacker: tuple[str, list[str]], capsys: pytest.CaptureFixture[str], verb: tuple[str, ...]
) -> None:
    url, heard = attacker
    project = clone(data_folder(url))
    code, err = said(capsys, *verb)
    assert code == NOT_ALLOWED and str(project / ".mainspring") in err and "--data" in err
    (project / "deep").mkdir()
    with pytest.raises(Forbidden, match="may have come with a repository"):
        find_connection(environ={}, start=project / "deep")
    with pytest.raises(Forbidden):
        Client()
    assert heard == []
    # Who names it trusts it.
    assert find_connection(environ={}, data=project / ".mainspring").token == "ms_of-the-attacker"


@pytest.mark.parametrize("name", ["MAINSPRING_TOKEN", "MAINSPRING_TOKEN_FILE", "--token-file"])
def test_a_token_of_the_user_is_not_sent_to_an_address_that_was_found(
    clone: Clone,
    attacker: tuple[str, list[str]],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    name: str,
) -> None:
    url, heard = attacker
    project = clone(data_folder(url))
    file = tmp_path / "token"
    file.write_text(OWN_TOKEN)
    option = (name, str(file)) if name.startswith("--") else ()
    if not option:
        monkeypatch.setenv(name, OWN_TOKEN if name == "MAINSPRING_TOKEN" else str(file))
    for verb in ("queues", "worker"):
        assert said(capsys, verb, *option)[0] == NOT_ALLOWED
    # Also if the folder is our own: an address that was found gets the token that was found with it.
    (project / ".mainspring/folder-id").unlink()
    record_folder(project / ".mainspring")
    code, err = said(capsys, "queues", *option)
    assert code == NOT_ALLOWED and "server.json" in err and "--url" in err and "MAINSPRING_URL" in err
    assert heard == []
    assert main(["queues", "--url", url, *option]) == 0
    assert main(["queues", "--data", ".mainspring", *option]) == 0
    assert len(heard) == 2 and all(OWN_TOKEN in each for each in heard)


@pytest.mark.parametrize(
    "values",
    [
        {"token_file": "../home/id_ed25519"},
        {"data": "../own"},
        {"token": "ms_of-the-attacker"},
        {"ca": "ca.pem"},
        {"insecure_http": True},
        {},
    ],
    ids=lambda values: next(iter(values), "url alone"),
)
def test_settings_that_came_along_do_not_say_where_tokens_go(
    clone: Clone,
    attacker: tuple[str, list[str]],
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    values: dict[str, object],
) -> None:
    url, heard = attacker
    data_folder("http://127.0.0.1:1", OWN_TOKEN)(tmp_path)
    (tmp_path / ".mainspring").rename(tmp_path / "own")
    for each in (values, {"url": url, **values}):
        if not each:
            continue
        shutil.rmtree(tmp_path / "origin", ignore_errors=True)
        shutil.rmtree(tmp_path / "project", ignore_errors=True)
        project = clone(settings(**each))
        for verb in (("queues",), ("worker",), ("workflow", "list")):
            code, err = said(capsys, *verb)
            assert code == NOT_ALLOWED and f"{project / 'mainspring.toml'}: {next(iter(each))} is not used" in err
            assert "--config mainspring.toml" in err and "MAINSPRING_CONFIG" in err
        tab = {"_MAINSPRING_COMPLETE": "complete_bash", "COMP_WORDS": "mainspring queue x", "COMP_CWORD": "2"}
        subprocess.run([*MAINSPRING, "queue"], env={**os.environ, **tab}, capture_output=True, check=False)
    assert heard == []


def test_each_setting_that_came_along_is_refused_by_itself(
    clone: Clone, attacker: tuple[str, list[str]], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What an option or a variable says is not asked of the file, and the rest of it still is."""
    url, heard = attacker
    clone(settings(url=url, token_file="../home/id_ed25519", slots=4))
    monkeypatch.setenv("MAINSPRING_URL", url)
    code, err = said(capsys, "queues")
    assert code == NOT_ALLOWED and "token_file is not used" in err
    monkeypatch.setenv("MAINSPRING_TOKEN", OWN_TOKEN)
    assert said(capsys, "queues")[0] == 0
    assert said(capsys, "queues", "--url", url)[0] == 0
    assert len(heard) == 2 and all(OWN_TOKEN in each and SECRET not in each for each in heard)
    monkeypatch.delenv("MAINSPRING_URL")
    assert "url is not used" in said(capsys, "worker")[1]
    assert len(heard) == 2


def test_processes_below_do_not_take_a_file_that_was_found_for_one_that_was_named(
    clone: Clone, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: dict[str, str | None] = {}

    async def run(options: object) -> int:
        seen["config"] = os.environ.get("MAINSPRING_CONFIG")
        return 0

    monkeypatch.setattr("mainspring.roles.scheduler.run_scheduler", run)
    clone(settings(url="http://127.0.0.1:1", database_url="postgresql://a@127.0.0.1:1/a"))
    assert said(capsys, "scheduler")[0] == 0
    assert seen == {"config": None}


def test_a_password_of_the_environment_is_not_for_a_database_that_came_along(
    clone: Clone, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    project = clone(settings(database_url="postgresql://a@127.0.0.1:1/a", database_wait="0s"))
    for name in ("PGPASSWORD", "PGPASSFILE"):
        monkeypatch.setenv(name, str(tmp_path / "secret"))
        for verb in ("migrate", "server", "scheduler", "up"):
            code, err = said(capsys, verb)
            assert code == NOT_ALLOWED and name in err and str(project / "mainspring.toml") in err
        assert said(capsys, "migrate", "--config", "mainspring.toml")[0] != NOT_ALLOWED
        monkeypatch.delenv(name)
    assert said(capsys, "migrate")[0] != NOT_ALLOWED


def test_a_link_that_came_along_is_not_followed(clone: Clone, attacker: tuple[str, list[str]]) -> None:
    url, heard = attacker

    def make(origin: Path) -> None:
        data_folder(url)(origin)
        (origin / ".mainspring/admin-token").unlink()
        (origin / ".mainspring/admin-token").symlink_to("../../home/id_ed25519")

    project = clone(make)
    (project / ".mainspring/folder-id").unlink()
    record_folder(project / ".mainspring")  # the second line: whatever let it be recorded
    with pytest.raises(Forbidden, match="admin-token is a link"):
        find_connection(environ={})
    assert heard == []


@pytest.mark.parametrize("start", ["project", "project/deep"])
def test_a_folder_that_is_a_link_is_not_followed(
    clone: Clone, tmp_path: Path, attacker: tuple[str, list[str]], start: str
) -> None:
    data_folder("http://127.0.0.1:1", OWN_TOKEN)(tmp_path)
    record_folder_again(tmp_path / ".mainspring")
    (tmp_path / ".mainspring").rename(tmp_path / "own")

    def make(origin: Path) -> None:
        (origin / "deep").mkdir()
        (origin / "deep/file").touch()
        (origin / ".mainspring").symlink_to("../own")

    clone(make)
    with pytest.raises(Forbidden, match="is a link"):
        find_connection(environ={}, start=tmp_path / start)


def record_folder_again(folder: Path) -> None:
    (folder / "folder-id").unlink()
    record_folder(folder)


def test_a_file_without_end_is_not_read(tmp_path: Path) -> None:
    data_folder("http://127.0.0.1:1")(tmp_path)
    folder = tmp_path / ".mainspring"
    record_folder_again(folder)
    with (folder / "admin-token").open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(Forbidden, match="has more than"):
        find_connection(environ={}, start=tmp_path)
    (folder / "admin-token").unlink()
    os.mkfifo(folder / "admin-token")
    with pytest.raises(Forbidden, match="is not a regular file"):
        find_connection(environ={}, start=tmp_path)


def test_a_folder_that_was_moved_is_still_known_and_one_that_is_gone_is_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    folders = [tmp_path / name for name in ("moved", "gone", "here")]
    for folder in folders:
        folder.mkdir()
        record_folder(folder)
    folders[0].rename(tmp_path / "elsewhere")
    assert is_recorded(tmp_path / "elsewhere")
    records = {record.read_text().strip(): record for record in (tmp_path / "state/mainspring/folders").iterdir()}
    shutil.rmtree(folders[1])
    long_ago = records[str(folders[1])].stat().st_mtime - 40 * 86400
    for folder in folders[1:]:
        os.utime(records[str(folder)], (long_ago, long_ago))
    record_folder(tmp_path / "elsewhere")
    assert sorted(record.exists() for record in records.values()) == [False, True, True]
    assert not records[str(folders[1])].exists() and is_recorded(folders[2])


def test_up_does_not_start_on_a_folder_that_came_along(clone: Clone, capsys: pytest.CaptureFixture[str]) -> None:
    """Its PostgreSQL would run the programs that postgresql.conf names, and its tokens would be known."""

    def make(origin: Path) -> None:
        data_folder("http://127.0.0.1:1")(origin)
        (origin / ".mainspring/postgres").mkdir()
        (origin / ".mainspring/postgres/PG_VERSION").write_text("18\n")
        (origin / ".mainspring/postgres/postgresql.conf").write_text("archive_command = 'touch /tmp/executed'\n")

    project = clone(make)
    before = sorted(str(path) for path in project.rglob("*"))
    code, err = said(capsys, "up")
    assert code == NOT_ALLOWED and "may have come with a repository" in err and "--data" in err
    assert sorted(str(path) for path in project.rglob("*")) == before


def test_up_and_server_do_not_use_a_data_folder_that_settings_name_which_came_along(
    clone: Clone, capsys: pytest.CaptureFixture[str]
) -> None:
    clone(settings(data="../own", database_url="postgresql://a@127.0.0.1:1/a"))
    for verb in ("up", "server"):
        code, err = said(capsys, verb)
        assert code == NOT_ALLOWED and "data is not used" in err


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("log_store", "s3://of-the-attacker/output"),
        ("notify_allow", "*"),
        ("public_url", "https://attacker.example"),
        ("allow_host", ["attacker.example"]),
        ("sources", "connect.yaml"),
    ],
)
def test_settings_that_came_along_do_not_say_what_a_server_sends_elsewhere_or_answers_to(
    clone: Clone, capsys: pytest.CaptureFixture[str], key: str, value: object
) -> None:
    """Output with the keys of the user's cloud, messages to private addresses, and pages of the attacker as our own."""
    project = clone(settings(**{key: value, "database_url": "postgresql://a@127.0.0.1:1/a", "database_wait": "0s"}))
    for verb in {"allow_host": ("server",), "sources": ("up",)}.get(key, ("up", "server")):
        code, err = said(capsys, verb)
        assert code == NOT_ALLOWED and f"{project / 'mainspring.toml'}: {key} is not used" in err
        assert f"--{key.replace('_', '-')}" in err
    assert said(capsys, "server", "--config", "mainspring.toml")[0] != NOT_ALLOWED


@pytest.mark.anyio
async def test_a_token_that_came_along_does_not_become_an_admins(
    clone: Clone, database_url: str, connection: asyncpg.Connection, caplog: pytest.LogCaptureFixture
) -> None:
    """`mainspring server` in the clone, whose database may have an admin already, or none."""
    project = clone(data_folder("http://127.0.0.1:1"))
    folder = project / ".mainspring"
    known = tokens.hash_token("ms_of-the-attacker")
    assert await ensure_admin_token(database_url, folder, only_first=True, trusted=False) is None
    assert await tokens.find(connection, known) is None
    await connection.execute("delete from mainspring.tokens")
    made = await ensure_admin_token(database_url, folder, only_first=True, trusted=False)
    assert made == (folder / "admin-token").read_text().strip() != "ms_of-the-attacker"
    assert await tokens.find(connection, known) is None
    # The database has it now, which is proof enough.
    assert await ensure_admin_token(database_url, folder, only_first=True, trusted=False) == made
