"""Commands that try to get out of the sandbox. They get nothing, as this user and, if this is root, as `nobody`.

Needs bubblewrap and user namespaces; the part for `nobody` needs root.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from mainspring.kinds.shell.executor import ShellExecutor
from mainspring.kinds.shell.sandbox.bubblewrap import Bubblewrap
from mainspring.store.embedded import EmbeddedPostgres
from mainspring.wire.execution import RunSetup
from mainspring.worker.execution.attempt import Attempt
from mainspring.worker.execution.work_folders import WorkFolders
from mainspring.worker.processes.watchdog.child import become
from mainspring.worker.processes.watchdog.tree import descendants
from tests.operations.waiting import until
from tests.worker.sandboxes import PYTHON, needs_sandbox, sandbox_here
from tests.worker.sinks import KeptLog
from tests.worker.test_shell_executor import ENVIRON, ran, result, shell

pytestmark = needs_sandbox

PROBES = (Path(__file__).parent / "sandbox_probes.py").read_text()
NOBODY = 65534
SECRET = "a-secret-of-the-worker"


@pytest.fixture
def folders() -> Iterator[WorkFolders]:
    made = WorkFolders()
    yield made
    made.close()


@pytest.fixture
def aims(postgres: EmbeddedPostgres, tmp_path: Path, folders: WorkFolders) -> Iterator[dict[str, Any]]:
    """What there is to get: tokens, other runs, sockets of services, the environment of the worker."""
    neighbour = folders.make() / "result"
    data = tmp_path / "data"
    data.mkdir()
    secrets = [data / "admin-token", tmp_path / "pool-token", neighbour, Path.home() / f".attack-{uuid4().hex}"]
    for secret in secrets:
        secret.write_text("ms_secret")
    database = str(postgres.socket_folder / ".s.PGSQL.5432")
    abstract = f"@mainspring-{uuid4().hex}"
    with socket.socket(socket.AF_UNIX) as listening, socket.create_server(("127.0.0.1", 0)) as port:
        listening.bind(abstract.replace("@", "\0"))
        listening.listen()
        elsewhere = [postgres.folder, "/root", "/home", "/run", "/opt", "/sys", "/boot", "/var/lib", "/etc/shadow"]
        yield {
            "secrets": [str(path) for path in (*secrets, *elsewhere, "/etc/ssh", "/etc/ssl/private", database)],
            "sockets": [database, abstract, port.getsockname()[1], "/run/docker.sock", "/run/dbus/system_bus_socket"],
            "words": [SECRET, "MAINSPRING_TOKEN", *(ENVIRON[name] for name in ENVIRON if "SECRET" in name)],
        }
    secrets[-1].unlink()


NOTHING = {
    "ids": [1000],
    "status": {"CapEff": "0" * 16, "CapPrm": "0" * 16, "CapBnd": "0" * 16, "NoNewPrivs": "1", "Seccomp": "2"},
    "read": [],
    "reached": [],
    "words": [],
    "calls": {
        "unshare": "EPERM", "clone": "EPERM", "clone3": "ENOSYS", "ptrace": "EPERM", "keyctl": "EPERM",
        "add_key": "EPERM", "io_uring_setup": "ENOSYS", "userfaultfd": "EPERM", "process_vm_readv": "EPERM",
        "fsopen": "ENOSYS", "open_by_handle_at": "EPERM", "personality": "EPERM", "not_known_yet": "ENOSYS",
    },
    "mount": "EPERM",
    "vsock": "EAFNOSUPPORT",
    "terminal": "EPERM",
    "writable memory": [],
    "shared memory is the folder": True,
    "host name": "sandbox",
}  # fmt: skip
DEVICES = ["/dev/full", "/dev/null", "/dev/random", "/dev/urandom", "/dev/zero"]


def check(found: dict[str, Any]) -> None:
    assert {name: found[name] for name in NOTHING} == NOTHING
    assert set(found["writable"]) - set(DEVICES) == {"/sandbox", "/tmp", "/dev/shm"}
    assert found["processes"] < 6, "its own alone"
    others = [name for name in found["descriptors"] if not name.startswith(("pipe:", "/dev/null", "/proc/"))]
    assert not others, "of the worker, its supervisor or bwrap"


def test_an_attacker_gets_nothing(aims: dict[str, Any], folders: WorkFolders, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ENVIRON, "MAINSPRING_TOKEN", SECRET)
    ending, _ = ran(shell([PYTHON, "-c", PROBES, json.dumps(aims)]), confine_all=True, folders=folders)
    check(json.loads(result(ending)["output"]))


@pytest.mark.skipif(os.getuid() != 0, reason="only root can run a command as nobody")
def test_an_attacker_gets_nothing_where_an_ordinary_user_runs_bwrap(aims: dict[str, Any]) -> None:
    folder = Path(tempfile.mkdtemp(dir="/tmp"))
    os.chown(folder, NOBODY, NOBODY)
    sandbox = sandbox_here()
    assert isinstance(sandbox, Bubblewrap)
    environ = {"PATH": "/usr/local/bin:/usr/bin:/bin"}
    order = sandbox.confine([PYTHON, "-c", PROBES, json.dumps(aims)], folder, environ, {})
    output, theirs = os.pipe()
    us = os.getpid()
    try:
        pid = os.fork()
        if pid == 0:
            os.setgroups([])
            os.setresgid(NOBODY, NOBODY, NOBODY)
            os.setresuid(NOBODY, NOBODY, NOBODY)
            become(order.message(), theirs, theirs, None, None, None, us)
        os.close(theirs)
        with os.fdopen(output) as said:
            text = said.read()
        assert os.waitpid(pid, 0)[1] == 0, text
    finally:
        shutil.rmtree(folder)
    check(json.loads(text))


STAYS = """
import os, signal, sys, time
for number in range(1, 32):
    if number not in (signal.SIGKILL, signal.SIGSTOP, signal.SIGCHLD):
        signal.signal(number, signal.SIG_IGN)
for _ in range(2):
    if os.fork():
        if sys.argv[1] == "leave":
            os._exit(0)
        break
    os.setsid()
sys.stdout.write("here\\n")
sys.stdout.flush()
while True:
    time.sleep(1)
"""


def processes_with(mark: str) -> list[int]:
    """The processes of the machine that have this word in their command line."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if mark.encode() in path.read_bytes().split(b"\0"):
                found.append(int(path.parent.name))
        except OSError:
            continue
    return found


def test_nothing_outlives_a_command_that_leaves_its_session() -> None:
    mark = uuid4().hex
    command = f'{PYTHON} -c "$STAYS" leave {mark} > here & until [ -s here ]; do sleep 0.01; done'
    ending, _ = ran(shell(command, setup=RunSetup(env={"STAYS": STAYS})), confine_all=True)
    assert ending.status == "SUCCESS", ending.error
    assert processes_with(mark) == []


def test_nothing_outlives_the_supervisor_and_the_watchdog() -> None:
    """Both are killed at once, so that neither can clean up."""
    mark = uuid4().hex
    log = KeptLog()
    inside: list[int] = []

    async def kill_all_above(executor: ShellExecutor, _attempt: Attempt) -> None:
        await log.said(b"here\nhere\nhere")
        (command,) = executor._commands
        inside.extend(descendants(command.pid))
        watchdog = executor._watchdog.pid
        assert watchdog is not None
        for pid in (watchdog, command.supervisor):
            os.kill(pid, signal.SIGSTOP)
        for pid in (watchdog, command.supervisor):
            os.kill(pid, signal.SIGKILL)

    ending, _ = ran(shell([PYTHON, "-c", STAYS, "stay", mark]), kill_all_above, log.open, confine_all=True)
    assert ending.status == "FAILED"
    assert len(inside) >= 3
    asyncio.run(until(lambda: not processes_with(mark)))
