"""Only the owner can read what `mainspring up` keeps in its data folder, whatever the umask of the user is. Commands
have the umask of the user."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from mainspring.roles.up import MAINSPRING
from tests.processes.cluster import SLOW, START, eventually, free_port

pytestmark = [pytest.mark.anyio, pytest.mark.slow]
MARK = ".private"


@asynccontextmanager
async def up(data: Path, umask: int, *options: str) -> AsyncIterator[httpx.AsyncClient]:
    port, log = free_port(), data.parent / "up.log"
    clean = {name: value for name, value in os.environ.items() if not name.startswith("MAINSPRING_")}
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*MAINSPRING, "up", "--data", str(data), "--port", str(port), *options],
            stdin=subprocess.DEVNULL, stdout=output, stderr=output, umask=umask,
            env={**clean, "XDG_STATE_HOME": str(data.parent / "state")},
        )  # fmt: skip
    try:

        async def is_up() -> bool:
            assert process.poll() is None, log.read_text()
            return "Ctrl-C stops everything" in log.read_text()

        await eventually(is_up, START, "it is up")
        token = (data / "admin-token").read_text().strip()
        headers = {"Authorization": f"Bearer {token}"}
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", headers=headers, timeout=60) as client:
            yield client
    finally:
        process.send_signal(signal.SIGINT)
        process.wait()


async def output_of(client: httpx.AsyncClient, command: str) -> str:
    answer = await client.post("/v1/jobs", json={"command": command})
    assert answer.status_code == 201, answer.text

    async def look() -> dict[str, Any]:
        run = (await client.get(f"/v1/jobs/{answer.json()['job_id']}/status")).json()["latest_run"] or {}
        return run if run.get("end_time") else {}

    run = await eventually(look, SLOW, "the command ends")
    assert run["status"] == "SUCCESS", run
    text: str = run["result"]["output"]
    return text


def open_to_others(folder: Path) -> list[str]:
    """What others could read, write or enter. Sockets have no content."""
    found = []
    for path in (folder, *folder.rglob("*")):
        try:
            mode = path.lstat().st_mode
        except FileNotFoundError:  # PostgreSQL replaces files
            continue
        if mode & 0o077 and not stat.S_ISSOCK(mode) and not stat.S_ISLNK(mode):
            found.append(f"{stat.S_IMODE(mode):o} {path}")
    return found


@pytest.mark.slow
async def test_nobody_else_reads_the_data_folder_and_commands_have_the_umask_of_the_user(tmp_path: Path) -> None:
    data = tmp_path / "data"

    async def logs() -> list[Path]:
        return [path for path in (data / "logs").rglob("*") if path.name.isdigit()]

    async with up(data, 0o002, "--log-store", str(data / "logs")) as client:
        assert (await output_of(client, "umask; echo x > file; stat -c %a file")).split() == ["0002", "664"]
        written = await eventually(logs, SLOW, "the output is stored")
        assert open_to_others(data) == []

    # As an earlier version left it: without a setting, its logs were there.
    for path in (data, data / "logs", *(path for path in (data / "logs").rglob("*")), data / "postgres.log"):
        path.chmod(0o755 if path.is_dir() else 0o644)
    (data / "logs" / MARK).unlink()

    async with up(data, 0o000) as client:
        assert (await output_of(client, "umask")).strip() == "0000"

        async def mended() -> bool:
            return open_to_others(data) == []

        await eventually(mended, SLOW, "older files are private")
        assert all(path.exists() for path in written)
        assert (await client.get("/v1/runs")).status_code == 200
