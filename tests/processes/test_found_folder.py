"""The data folder of `mainspring up` goes on working without options: for clients, workers, and the next `up`."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from pathlib import Path

import pytest

from mainspring.roles.up import MAINSPRING
from mainspring.sdk.client.client import Client
from tests.processes.cluster import START, eventually, free_port

pytestmark = [pytest.mark.anyio, pytest.mark.slow]


def copy(master: int, log: Path) -> None:
    """What appears on the terminal, until its other end is closed."""
    with log.open("ab") as kept:
        while True:
            try:
                kept.write(os.read(master, 65536))
                kept.flush()
            except OSError:
                return


@pytest.mark.slow
async def test_the_folder_that_up_wrote_is_found_by_clients_and_by_the_next_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("MAINSPRING_")}
    below = tmp_path / "deep"
    below.mkdir()
    monkeypatch.chdir(below)
    monkeypatch.setattr(os, "environ", clean)
    for on_terminal in (False, True):
        log = tmp_path / f"up-{on_terminal}.log"
        master, slave = os.openpty()
        with log.open("ab") as output:
            up = subprocess.Popen(
                [*MAINSPRING, "up", "--port", str(free_port())], stdin=subprocess.DEVNULL,
                stdout=slave if on_terminal else output, stderr=output, cwd=tmp_path, env=clean,
            )  # fmt: skip
        os.close(slave)
        copying = threading.Thread(target=copy, args=(master, log))
        copying.start()
        try:

            async def is_up(up: subprocess.Popen[bytes] = up, log: Path = log) -> bool:
                assert up.poll() is None, log.read_text()
                return "Ctrl-C stops everything" in log.read_text()

            await eventually(is_up, START, "it is up")
            subprocess.run([*MAINSPRING, "queues"], cwd=below, env=clean, capture_output=True, check=True)
            with Client() as client:
                assert client.connection.token == (tmp_path / ".mainspring/admin-token").read_text().strip()
                client.queues()
        finally:
            up.send_signal(signal.SIGINT)
            up.wait()
            copying.join()
            os.close(master)
        assert ("/ui/#code=" in log.read_text()) is on_terminal, "a log would keep the link that signs in"
    assert (tmp_path / ".mainspring/.gitignore").read_text() == "*\n", "git does not store tokens by accident"
