"""What a shell run sees of the machine and of its worker: a folder and an environment of its own, limits, a sandbox."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from mainspring.kinds.shell.executor import ShellExecutor
from mainspring.kinds.shell.sandbox.bubblewrap import NoSandbox
from mainspring.wire.exchange import RunOrder
from mainspring.wire.execution import Cause, ResourceLimits, RunSetup
from mainspring.worker.execution.attempt import Attempt, Stop
from mainspring.worker.processes.watchdog.tree import descendants

from .processes import alive
from .sandboxes import needs_sandbox
from .sinks import KeptLog
from .test_shell_executor import known_to_run, ran, result, shell, stop


def said(order: RunOrder) -> str:
    text: str = result(ran(order)[0])["output"]
    return text


# -- the working folder


def test_each_run_has_a_fresh_folder_that_is_gone_afterwards() -> None:
    first = said(shell("pwd; ls -A; stat -c %a .; echo data > file; mkdir -p a/b; echo $TMPDIR"))
    folder, mode, tmpdir = first.split()
    assert (mode, tmpdir) == ("700", folder)
    assert not Path(folder).exists()
    assert said(shell("ls -A")) == ""


def test_a_folder_that_was_made_unwritable_is_removed_too() -> None:
    folder = said(
        shell("pwd; mkdir -p deep/er; echo x > deep/er/file; chmod 0400 deep/er/file; chmod 0500 deep/er deep")
    )
    assert not Path(folder.strip()).exists()


def test_a_folder_is_gone_when_the_run_was_killed() -> None:
    ending, _ = ran(shell("pwd; echo x > file; kill -KILL $$"))
    assert ending.error is not None
    assert not Path(ending.error.partition(": ")[2]).exists()


# -- the environment


def test_the_process_that_keeps_a_command_has_none_of_the_workers_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MAINSPRING_TOKEN", "a secret")
    assert said(shell("(tr '\\0' '\\n' < /proc/$PPID/environ) 2>/dev/null | grep -c secret; true")) == "0\n"


def test_the_jobs_variables_are_there_and_may_replace_what_is_inherited() -> None:
    order = shell(["env"], setup=RunSetup(env={"REGION": "eu", "LC_ALL": "C"}))
    environ = dict(line.split("=", 1) for line in said(order).splitlines())
    assert (environ["REGION"], environ["LC_ALL"]) == ("eu", "C")
    assert not any("secret" in value for value in environ.values())


def test_a_command_is_found_on_the_path_that_the_job_names(tmp_path: Path) -> None:
    program = tmp_path / "my-program"
    program.write_text("#!/bin/sh\necho found\n")
    program.chmod(0o755)
    assert said(shell(["my-program"], setup=RunSetup(env={"PATH": f"{tmp_path}:/bin:/usr/bin"}))) == "found\n"


# -- limits


def failure(command: str | list[str], **limits: Any) -> tuple[str, bool, Cause | None]:
    ending, _ = ran(shell(command, setup=RunSetup(limits=ResourceLimits(**limits))))
    assert ending.status == "FAILED"
    return ending.error or "", ending.retry, ending.cause


def test_a_breach_fails_the_attempt_with_the_limit_and_the_last_output() -> None:
    eats = "import os, time; print('eating', flush=True); os.fork(); x = b'x' * (40 << 20); time.sleep(60)"
    error, retry, cause = failure([sys.executable, "-S", "-c", eats], memory=64_000_000)
    assert (error, retry, cause) == ("memory limit of 64MB exceeded: eating", True, Cause(exit_code=-9))


def test_cpu_time_is_limited() -> None:
    assert failure("while :; do :; done", cpu=0.3)[0] == "CPU limit of 300ms exceeded"


def test_the_number_of_processes_is_limited() -> None:
    assert failure("for i in 1 2 3 4 5 6 7 8; do sleep 60 & done; wait", processes=4)[0].startswith(
        "limit of 4 processes exceeded"
    )


def test_open_files_are_limited() -> None:
    opens = "import os\nfor _ in range(100): os.open('/dev/null', 0)"
    assert "Too many open files" in failure([sys.executable, "-S", "-c", opens], files=32)[0]


# -- the sandbox


def test_a_run_that_needs_a_sandbox_fails_for_good_where_there_is_none() -> None:
    none = NoSandbox("bwrap is not installed", "install it")
    for order, fields in ((sandboxed("true"), {}), (shell("true"), {"confine_all": True})):
        ending, _ = ran(order, sandbox=none, **fields)
        assert (ending.status, ending.retry) == ("FAILED", False)
        assert ending.error == "sandbox: this worker offers none: bwrap is not installed"
    assert ran(shell("true"), sandbox=none)[0].status == "SUCCESS"


def sandboxed(command: str, **setup: Any) -> RunOrder:
    return shell(command, setup=RunSetup(sandbox="bubblewrap", **setup))


@needs_sandbox
def test_a_sandbox_has_a_read_only_system_and_a_writable_folder() -> None:
    order = sandboxed(
        "touch /usr/x /etc/x 2>&1 | grep -c 'Read-only'; echo hi > file && cat file; [ $PWD = $HOME ] && echo home"
    )
    assert said(order) == "2\nhi\nhome\n"


@needs_sandbox
def test_a_worker_may_put_every_command_into_a_sandbox() -> None:
    """Whoever submits says what runs, so whoever must not have the worker's token is not asked."""
    for setup in (None, RunSetup(), RunSetup(env={"A": "b"})):
        ending, _ = ran(shell("touch /usr/x 2>&1 | grep -c Read-only; ls /proc | grep -cE '^[0-9]+$'", setup=setup),
                        confine_all=True)  # fmt: skip
        read_only, processes = result(ending)["output"].split()
        assert read_only == "1"
        assert int(processes) < 10, "none but its own"


@needs_sandbox
def test_variables_that_a_loader_heeds_are_for_the_inside_alone() -> None:
    """With LD_PRELOAD, bwrap itself would load a library of the job."""
    order = sandboxed("true", env={"LD_TRACE_LOADED_OBJECTS": "1", "GREETING": "hello"})
    loaded = said(order)
    assert "libc.so" in loaded, "the shell inside was asked"
    assert "libcap" not in loaded, "bwrap was not"
    assert (
        said(sandboxed("echo $LD_LIBRARY_PATH $GREETING", env={"LD_LIBRARY_PATH": "/x", "GREETING": "hi"})) == "/x hi\n"
    )


@needs_sandbox
def test_a_sandboxed_command_can_write_to_its_folder_only() -> None:
    places = "/ /etc /usr /var /dev /proc"
    tries = f"for place in {places}; do touch $place/x 2>/dev/null && echo $place; done"
    order = sandboxed(f"{tries}; touch /dev/shm/a /tmp/b /var/tmp/c $TMPDIR/d; echo x > /dev/null && cd && ls")
    assert said(order).split() == ["a", "b", "c", "d"]


@needs_sandbox
def test_not_even_root_gets_out_of_a_sandbox() -> None:
    """Where the worker is root: a kernel setting is opened for writing and left as it is."""
    order = sandboxed(
        """(: >> /proc/sys/kernel/core_pattern) 2>/dev/null && echo may change the kernel
        mount -o remount,rw,bind / / 2>/dev/null && echo may write the system
        umount /root 2>/dev/null && echo sees what is hidden
        grep CapEff /proc/self/status"""
    )
    assert said(order).split() == ["CapEff:", "0" * 16]


@needs_sandbox
def test_the_processes_of_the_sandbox_are_not_counted_as_the_commands() -> None:
    order = sandboxed("sleep 0.5; echo done", limits=ResourceLimits(processes=2))
    assert said(order) == "done\n"


@needs_sandbox
def test_a_sandbox_has_no_network() -> None:
    dials = "import socket\nfor a in (('1.1.1.1', 53), ('127.0.0.1', 22)):\n  print(socket.socket().connect_ex(a))"
    code = said(sandboxed(f'/usr/bin/env python3 -c "{dials}" 2>&1 || cat /proc/net/dev'))
    assert code.split() in (["101", "111"], ["101", "101"])


@needs_sandbox
def test_a_sandbox_sees_itself_only_and_no_homes_and_no_sockets(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    homes = f"ls -A /root /home /run 2>/dev/null | grep -v :; cat {tmp_path}/secret 2>&1; ls /proc | grep -c '^[0-9]'"
    lines = [line for line in said(sandboxed(homes)).splitlines() if line]
    assert "No such file or directory" in lines[0]
    assert int(lines[1]) < 8
    assert len(lines) == 2


@needs_sandbox
def test_a_sandboxed_run_has_its_grace_and_is_gone_when_it_times_out() -> None:
    order = sandboxed(
        """trap 'echo saving; sleep 0.1; echo saved; exit 3' TERM
        setsid sh -c "trap '' TERM; echo ready; while :; do sleep 0.02; done" & while :; do sleep 0.02; done""",
        kill_grace=8.0,
    )
    log = KeptLog()
    pids: list[int] = []

    async def time_out(executor: ShellExecutor, attempt: Attempt) -> None:
        await log.said(b"ready")
        await known_to_run(attempt)
        (command,) = executor._commands
        pids.extend([command.pid, *descendants(command.pid)])
        stop(attempt, Stop.TIMEOUT)

    ending, _ = ran(order, time_out, log.open)
    assert ending.error is not None
    assert ending.error.startswith("timed out after 1h")
    assert log.data.endswith(b"saving\nsaved\n")
    assert len(pids) >= 4
    assert not any(map(alive, pids))
