"""What a command can do to the supervisor above it and to the watchdog, as the same user, with and without a pid
namespace. It can end itself. It cannot speak for them, and the next command notices nothing."""

from __future__ import annotations

import signal
import sys

import pytest

from mainspring.worker.processes.watchdog.namespaces import why_not
from mainspring.worker.processes.watchdog_client import WatchdogClient
from tests.attack.another_user import needs_another_user, run_as_another_user
from tests.worker.test_command import start, with_a_watchdog

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="supervisors of a tree need Linux")
isolations = pytest.mark.parametrize(
    "isolated",
    [False, pytest.param(True, marks=pytest.mark.skipif(why_not() is not None, reason="no pid namespace here"))],
)


def python(program: str) -> list[str]:
    return [sys.executable, "-I", "-S", "-c", program]


@isolations
@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGUSR2, signal.SIGCHLD, signal.SIGCONT, signal.SIGTERM])
def test_a_signal_to_the_supervisor_ends_no_command(number: signal.Signals, isolated: bool) -> None:
    async def test(watchdog: WatchdogClient) -> None:
        run = await start(watchdog, f"kill -{int(number)} $PPID; sleep 0.3; echo done", isolated=isolated)
        assert await run.gone() == "done\n"
        assert (run.command.exit_code, run.command.breach) == (0, None)

    with_a_watchdog(test)


TRACED = """
import ctypes, os, signal
ctypes.CDLL(None).ptrace(0, 0, 0, 0)
os.kill(os.getpid(), signal.SIGSTOP)
print("went on", flush=True)
"""


@isolations
def test_a_command_that_makes_its_supervisor_its_tracer_goes_on(isolated: bool) -> None:
    async def test(watchdog: WatchdogClient) -> None:
        run = await start(watchdog, python(TRACED), isolated=isolated)
        assert await run.gone() == "went on\n"
        assert run.command.exit_code == 0

    with_a_watchdog(test)


STATE = """
import os, resource
print([resource.getrlimit(getattr(resource, n)) for n in sorted(dir(resource)) if n.startswith("RLIMIT_")],
      sorted(os.sched_getaffinity(0)), os.sched_getscheduler(0), os.nice(0))
"""
CHANGES = {
    "limit of files": "resource.prlimit(os.getppid(), resource.RLIMIT_NOFILE, (30, 30))",
    "limit of file sizes": "resource.prlimit(os.getppid(), resource.RLIMIT_FSIZE, (1, 1))",
    "cores": "os.sched_setaffinity(os.getppid(), {max(os.sched_getaffinity(0))})",
    "scheduling": "os.sched_setscheduler(os.getppid(), os.SCHED_IDLE, os.sched_param(0))",
    "priority": "os.setpriority(os.PRIO_PROCESS, os.getppid(), 19)",
}


@isolations
@pytest.mark.parametrize("change", CHANGES)
def test_what_a_command_changes_about_its_supervisor_does_not_reach_the_next_command(
    change: str, isolated: bool
) -> None:
    async def test(watchdog: WatchdogClient) -> None:
        async def said(program: str) -> tuple[str, int]:
            run = await start(watchdog, python(program), isolated=isolated)
            text = await run.gone()
            assert run.command.exit_code == 0
            return text, run.command.supervisor

        before, first = await said(STATE)
        assert (await said(f"import os, resource; {CHANGES[change]}"))[1] == first, "a supervisor is used again"
        after, second = await said(STATE)
        assert after == before
        assert second != first

    with_a_watchdog(test)


LOOKS = """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
pid = os.getppid()
above = [pid] if pid == 1 else [pid, int(open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[1])]
for pid in above:
    for name in ("mem", "environ", "maps", "fd/0", "fd/3", "fd/4", "cwd", "root", "auxv"):
        path = f"/proc/{pid}/{name}"
        try:
            print("opened", path, os.open(path, os.O_RDONLY))
        except OSError:
            pass
    try:
        print("listed", os.listdir(f"/proc/{pid}/fd"))
    except OSError:
        pass
    if libc.ptrace(16, pid, 0, 0) == 0:
        print("traced")
    handle = os.pidfd_open(pid)
    for number in range(12):
        if libc.syscall(438, handle, number, 0) >= 0:
            print("copied", number)
print("end")
"""


def what_it_gets(*, isolated: bool) -> str:
    said = ""

    async def test(watchdog: WatchdogClient) -> None:
        nonlocal said
        said = await (await start(watchdog, python(LOOKS), isolated=isolated)).gone()

    with_a_watchdog(test)
    return said


@needs_another_user
@isolations
def test_a_command_neither_reads_nor_traces_its_supervisor_and_the_watchdog(isolated: bool) -> None:
    how = "isolated" if isolated else "plain"
    done = run_as_another_user(sys.executable, "-m", "tests.attack.test_supervisors", how)
    assert (done.stdout, done.returncode) == ("end\n", 0), done.stderr


if __name__ == "__main__":
    sys.stdout.write(what_it_gets(isolated=sys.argv[1] == "isolated"))
