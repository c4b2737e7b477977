"""No process of a command outlives its run, whatever the command does to its supervisor and to the watchdog.

Needs Linux. As root, the ordinary user is one of a user namespace (`unshare` of util-linux); without root the tests of
a root worker are skipped. Those of the sandbox need bubblewrap. Where user namespaces are forbidden, an ordinary worker
has no protection (docs/guarantees.md), and its tests are skipped.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from mainspring.worker.processes.watchdog.tree import children_of, descendants
from mainspring.worker.processes.watchdog_client import WatchdogClient
from tests.worker.a_launched_worker import Launched, with_a_launched_worker
from tests.worker.exchange_server import ExchangeServer, an_order
from tests.worker.processes import alive, ended_soon, written
from tests.worker.sandboxes import needs_sandbox
from tests.worker.test_command import HOLD, start, with_a_watchdog

pytestmark = pytest.mark.slow

ROOT = os.geteuid() == 0
HERE = Path(__file__).parents[2]
AS_ORDINARY_USER = ["unshare", "--user", "--map-user=1234", "--map-group=1234"] if ROOT else []


def user_namespaces() -> bool:
    program = shutil.which("unshare")
    nested = [*AS_ORDINARY_USER, "unshare", "--user", "--pid", "--fork", "--mount-proc", "--map-root-user", "true"]
    return program is not None and subprocess.run(nested, capture_output=True, check=False).returncode == 0


needs_root = pytest.mark.skipif(not ROOT, reason="only root can give commands another account")
needs_user_namespaces = pytest.mark.skipif(not user_namespaces(), reason="user namespaces are forbidden here")


def what_became_of_them(words: str, prefix: list[str]) -> dict[str, Any]:
    argv = [*prefix, sys.executable, "-m", "tests.attack.hostile", words]
    done = subprocess.run(argv, cwd=HERE, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def check(found: dict[str, Any]) -> None:
    found.pop("user")
    assert {name: end["left"] for name, end in found.items()} == {name: [] for name in found}
    bomb = found.pop("bomb")
    assert bomb["error"].startswith("limit of 40 processes exceeded")  # the shell may say that it cannot fork
    # Nothing was hit but the command's own processes, so each went on to its last word.
    assert {name: end["status"] for name, end in found.items()} == dict.fromkeys(found, "SUCCESS")


@pytest.mark.parametrize(
    "words",
    [
        "isolated,account",
        pytest.param("isolated,account,sandbox", marks=[needs_sandbox, needs_user_namespaces]),
        "account",  # in a container that allows no namespaces
    ],
)
@needs_root
def test_nothing_outlives_a_run_of_a_root_worker(words: str) -> None:
    check(what_became_of_them(words, []))


@pytest.mark.parametrize("words", ["isolated", pytest.param("isolated,sandbox", marks=needs_sandbox)])
@needs_user_namespaces
def test_nothing_outlives_a_run_of_an_ordinary_user(words: str) -> None:
    found = what_became_of_them(words, AS_ORDINARY_USER)
    assert found["user"] != 0
    check(found)


def test_a_run_ends_when_its_orphans_have_even_if_supervisor_and_watchdog_were_killed(tmp_path: Path) -> None:
    """Without namespaces: the parent watchdog inherits what is left, and the report waits for it."""

    async def test(server: ExchangeServer, launched: Launched) -> None:
        order = an_order("shell", command=f"(setsid sh -c 'echo $$ >> {tmp_path}/pids; {HOLD}' &); {HOLD}")
        server.submit(order)
        (orphan,) = map(int, await written(tmp_path / "pids"))
        (watchdog,) = children_of(launched.worker)
        (supervisor,) = children_of(watchdog)
        for number in (signal.SIGSTOP, signal.SIGKILL):
            os.kill(watchdog, number)
            os.kill(supervisor, number)
        await server.until(lambda: server.outcomes)
        assert not alive(orphan)
        assert server.outcomes[order.run_id].status == "FAILED"

    with_a_launched_worker(tmp_path, test)


def test_a_watchdog_that_dies_while_it_stops_the_others_leaves_none_of_them_stopped(tmp_path: Path) -> None:
    async def test(watchdog: WatchdogClient) -> None:
        run = await start(watchdog, f"sh -c 'echo $$ >> {tmp_path}/pids; {HOLD}' & echo $$ >> {tmp_path}/pids; {HOLD}")
        pids = [*map(int, await written(tmp_path / "pids", 2)), run.command.supervisor]
        assert watchdog.pid is not None
        for pid in descendants(watchdog.pid):  # as tree.kill_below begins
            os.kill(pid, signal.SIGSTOP)
        os.kill(watchdog.pid, signal.SIGKILL)
        for pid in pids:
            assert await ended_soon(pid)
        await run.command.gone.wait()

    with_a_watchdog(test)


def test_a_parent_watchdog_that_dies_while_it_stops_the_others_leaves_none_of_them_stopped(tmp_path: Path) -> None:
    async def test(server: ExchangeServer, launched: Launched) -> None:
        server.submit(an_order("shell", command=f"sh -c 'echo $$ >> {tmp_path}/pids; {HOLD}' & {HOLD}"))
        await written(tmp_path / "pids")
        pids = descendants(launched.parent_watchdog)
        for pid in pids:  # as tree.kill_below begins
            os.kill(pid, signal.SIGSTOP)
        os.kill(launched.parent_watchdog, signal.SIGKILL)
        launched.process.kill()
        for pid in pids:
            assert await ended_soon(pid)

    with_a_launched_worker(tmp_path, test)
