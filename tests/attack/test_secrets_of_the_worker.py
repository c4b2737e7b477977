"""A command of the worker's own user does not see the tokens and the database of its worker.

Needs Linux with pid namespaces. As root, the ordinary user is one of a user namespace (`unshare` of util-linux).
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest
import uvloop

from mainspring.sdk.client.connection import private_paths, secrets_of
from mainspring.worker.processes.watchdog.namespaces import why_not
from mainspring.worker.processes.watchdog_client import WatchdogClient
from tests.attack.test_outliving import AS_ORDINARY_USER, HERE, needs_user_namespaces
from tests.worker.test_command import start

pytestmark = pytest.mark.skipif(why_not() is not None, reason=f"no pid namespace can be had here: {why_not()}")

NAMES = ("admin-token", "worker-token", "postgres-password")
LOOKS = """
cd $0; cat admin-token worker-token postgres-password postgres/PG_VERSION kept; ls postgres
umount postgres admin-token; unshare --user --map-root-user --mount sh -c 'umount postgres admin-token; cat admin-token'
rm -f admin-token; echo forged > worker-token; cat /proc/1/root$0/admin-token; true
"""


def a_data_folder(folder: Path) -> Path:
    for name in NAMES:
        (folder / name).write_text("secret")
    (folder / "kept").write_text("kept")
    (folder / "postgres").mkdir()
    (folder / "postgres" / "PG_VERSION").write_text("secret")
    return folder


async def what_commands_see(folder: Path) -> list[str]:
    """What a command prints, and the next one, after a token was replaced."""
    watchdog = WatchdogClient(hidden=secrets_of(private_paths(folder / "worker-token")))
    watchdog.start()
    said = []
    try:
        async with asyncio.timeout(60):
            for _ in range(2):
                run = await start(watchdog, ["sh", "-c", LOOKS, str(folder)], isolated=True)
                said.append(await run.gone())
                (folder / "new").write_text("secret")
                (folder / "new").replace(folder / "admin-token")
    finally:
        watchdog.stop()
    return said


def check(said: list[str], folder: Path) -> None:
    assert all("kept" in text for text in said), "the rest of the folder is as it was"
    assert not any("secret" in text for text in said)
    assert {(folder / name).read_text() for name in NAMES} == {"secret"}


@needs_user_namespaces
def test_a_command_of_an_ordinary_user_sees_no_secret(tmp_path: Path) -> None:
    folder = a_data_folder(tmp_path)
    argv = [*AS_ORDINARY_USER, sys.executable, "-m", "tests.attack.test_secrets_of_the_worker", str(folder)]
    done = subprocess.run(argv, cwd=HERE, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    check(json.loads(done.stdout), folder)


def test_the_secrets_of_a_data_folder_are_found_from_its_token_file(tmp_path: Path) -> None:
    folder = a_data_folder(tmp_path)
    expected = {folder.resolve() / name for name in (*NAMES, "postgres")}
    assert set(secrets_of([folder / "worker-token"])) == set(secrets_of([folder])) == expected
    (folder / "postgres-password").unlink()
    assert secrets_of([folder / "worker-token", folder / "missing"]) == [folder.resolve() / "worker-token"]


if __name__ == "__main__":
    sys.stdout.write(json.dumps(uvloop.run(what_commands_see(Path(sys.argv[1])))))
