"""A command does not see the tokens of its worker, nor anything of the data folder, whichever way it goes there.

Needs Linux with pid namespaces. The commands of a root worker run as another account, which the modes of the folder
here do not stop.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import uvloop

from mainspring.sdk.client.connection import private_paths, secrets_of
from mainspring.worker.processes.accounts import Account
from mainspring.worker.processes.watchdog.namespaces import why_not
from mainspring.worker.processes.watchdog_client import WatchdogClient
from tests.attack.another_user import HERE, NUMBER, ROOT, as_another_user, needs_another_user
from tests.eventually import PATIENCE
from tests.worker.test_command import start

pytestmark = pytest.mark.skipif(why_not() is not None, reason=f"no pid namespace can be had here: {why_not()}")

NAMES = ("admin-token", "worker-token", "server.json", "postgres-password", "logs/1/run", "postgres/PG_VERSION", "lock")
PARTS = ("data", "link", "elsewhere/project/data", "part", "/proc/1/root$PWD/data", "/proc/1/cwd/data", "project/data")
# $0: the folder above. Each line is a way to the data folder.
LOOKS = f"""
cd $0
for way in {" ".join(PARTS)}; do
  cat $way/* $way/*/* $way/*/*/* $way/admin-token $way/server.json; ls -laR $way/; echo forged > $way/server.json
  rm -rf $way/admin-token; touch $way/mine; chmod 777 $way
done
cat copy-of-the-token
cat /proc/*/root$PWD/data/admin-token /proc/*/cwd/data/admin-token /proc/*/fd/*/admin-token
ls -l /proc/1/fd/ /proc/1/cwd/; cat /proc/1/environ /proc/1/maps
umount -l data part elsewhere elsewhere/project/data; mount -t tmpfs none data; mv project/data project/moved
ln project/data/admin-token stolen; ln project/data/logs/1/run stolen; cat stolen; rmdir project/data
rm -rf project/data; mv project moved; cat moved/data/admin-token elsewhere/moved/data/admin-token moved/data/*
ls moved/data/; mv moved project
unshare --user --map-root-user --mount --pid --fork sh -c '
  umount -l data part elsewhere/project/data; umount -lR .; mount -t proc proc /proc; mount --bind / /mnt
  cat data/admin-token /mnt$PWD/data/admin-token /proc/*/root$PWD/data/admin-token; ls data part /mnt$PWD/data'
echo end
"""
LISTED = re.compile(r"(^| )(admin-token|server.json|logs|postgres|PG_VERSION)$", re.MULTILINE)
MOVED = "cd $0; cat moved/data/admin-token moved/data/logs/1/run project/data/admin-token; ls -R moved; echo end"
WORKS = (
    "echo mine > file && cat file && pwd && ls -la .. ../.. && cat ../../admin-token ../*/file; cat $0/data/server.json"
)


def a_project(folder: Path) -> Path:
    """`project/data` is the data folder. `data` and `link` are links to it; `elsewhere` and `part` are for mounts."""
    data = folder / "project" / "data"
    for name in NAMES:
        (data / name).parent.mkdir(parents=True, exist_ok=True)
        (data / name).write_text("secret")
    for name in ("elsewhere", "part"):
        (folder / name).mkdir()
    for name, target in (("data", "project/data"), ("link", "data"), ("copy-of-the-token", "data/admin-token")):
        (folder / name).symlink_to(target)
    for path in (folder, *folder.rglob("*")):  # the cover must hold, not the modes
        if not path.is_symlink():
            path.chmod(0o777 if path.is_dir() else 0o666)
    return data


async def what_commands_see(folder: Path) -> list[str]:
    """What a command prints, and another one after a token and the data folder were replaced, one whose supervisor is
    new while the project has another name, and then two whose working folders lie in the data folder."""
    data = folder / "data"
    watchdog = WatchdogClient(hidden=secrets_of(private_paths(data / "worker-token")))
    watchdog.start()
    account = Account("nobody", 65534, 65534, (), "/") if os.getuid() == 0 else None
    fields: dict[str, Any] = {"isolated": True, "account": account}
    said = []

    async def run(script: str, cwd: str = "/") -> None:
        # Its output is read when it has ended, so it must fit into the pipe. Each line counts once.
        command = await start(watchdog, ["sh", "-c", f"({script}) 2>&1 | sort -u", str(folder)], cwd=cwd, **fields)
        said.append(await command.gone())

    try:
        async with asyncio.timeout(PATIENCE):
            await run(LOOKS)
            (folder / "new").write_text("secret")
            (folder / "new").replace(data / "admin-token")
            await run(LOOKS)
            other = await start(watchdog, "exec sleep 60", **fields)
            (folder / "project").rename(folder / "moved")
            await run(MOVED)
            (folder / "moved").rename(folder / "project")
            other.command.kill()
            await other.gone()
            real = data.resolve()
            real.rename(real.with_name("before"))
            shutil.copytree(real.with_name("before"), real)
            shutil.rmtree(real.with_name("before"))
            await run(LOOKS)
            for name in ("one", "two"):
                work = real / "tmp" / name
                work.mkdir(parents=True)
                for path in (work.parent, work):
                    path.chmod(0o777)
                await run(WORKS, str(work))
            await run(LOOKS)
    finally:
        watchdog.stop()
    return said


def check(said: list[str], data: Path) -> None:
    *looks, one, two, last = said
    for text in (*looks, last):
        assert "end\n" in text, text
    for text, name in ((one, "one"), (two, "two")):
        assert {"mine", f"{data}/tmp/{name}"} <= set(text.splitlines()), text
    for text in said:
        assert "secret" not in text, text
        assert not LISTED.search(text), text
    assert "one" not in two
    assert {(data / name).read_text() for name in NAMES} == {"secret"}
    assert {path.name for path in data.iterdir()} == {*(name.partition("/")[0] for name in NAMES), "tmp"}


@pytest.fixture
def folder() -> Iterator[Path]:
    """Every account may pass through the folders above."""
    made = Path(tempfile.mkdtemp(prefix="ms-covers-", dir="/tmp")).resolve()
    yield made
    shutil.rmtree(made)


def with_mounts(folder: Path) -> list[str]:
    """The words before a command line for which the project, and a part of its data, are mounted a second time."""
    script = (
        f'mount --bind {folder} {folder}/elsewhere; mount --bind {folder}/project/data/logs {folder}/part; exec "$@"'
    )
    return ["unshare", "--mount", "sh", "-ec", script, "sh"]


def looked(folder: Path, argv: list[str]) -> list[str]:
    argv = [*argv, sys.executable, "-m", "tests.attack.test_secrets_of_the_worker", str(folder)]
    done = subprocess.run(argv, cwd=HERE, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    said: list[str] = json.loads(done.stdout)
    return said


@needs_another_user
def test_a_command_of_an_ordinary_user_sees_nothing_of_the_data_folder(folder: Path) -> None:
    data = a_project(folder)
    if ROOT:
        for path in (folder, *folder.rglob("*")):
            os.chown(path, NUMBER, NUMBER, follow_symlinks=False)
    check(looked(folder, [*(with_mounts(folder) if ROOT else ()), *as_another_user()]), data)


@pytest.mark.skipif(not ROOT, reason="only root can give commands another account")
def test_a_command_of_a_root_worker_sees_nothing_of_the_data_folder(folder: Path) -> None:
    data = a_project(folder)
    check(looked(folder, with_mounts(folder)), data)


def test_a_data_folder_is_found_from_each_of_its_token_files(tmp_path: Path) -> None:
    data = a_project(tmp_path)
    assert (
        secrets_of([data / "worker-token"]) == secrets_of([data]) == secrets_of([data, data / "admin-token"]) == [data]
    )
    (data / "postgres-password").unlink()  # with another database
    assert secrets_of([data / "worker-token"]) == [data]


@pytest.mark.parametrize("beside", [(), ("notes.txt",), ("admin-token", "notes.txt")])
def test_a_token_file_in_another_folder_is_hidden_alone(tmp_path: Path, beside: tuple[str, ...]) -> None:
    for name in ("token", *beside):
        (tmp_path / name).write_text("x")
    assert secrets_of([tmp_path / "token"]) == [tmp_path / "token"]


def test_the_data_folder_of_a_server_without_up_is_known_by_what_is_in_it(tmp_path: Path) -> None:
    (tmp_path / "admin-token").write_text("x")
    (tmp_path / "logs").mkdir()
    assert secrets_of([tmp_path / "admin-token"]) == [tmp_path]


if __name__ == "__main__":
    sys.stdout.write(json.dumps(uvloop.run(what_commands_see(Path(sys.argv[1])))))
