"""Nothing in the /proc of a sandboxed command names a folder or a variable of the machine: neither the environment, the
arguments and the memory of the first process, nor the lists of mounts.

Needs bubblewrap, pid namespaces and a kernel that allows an overlay on the temporary folder.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from mainspring.wire.execution import ResourceLimits, RunSetup
from mainspring.worker.execution.work_folders import WorkFolders
from mainspring.worker.processes.accounts import command_accounts
from mainspring.worker.processes.watchdog.namespaces import why_not
from tests.attack.another_user import needs_another_user, run_as_another_user
from tests.worker.sandboxes import PYTHON, needs_sandbox
from tests.worker.test_shell_executor import ENVIRON, ran, result, shell

pytestmark = [
    needs_sandbox,
    pytest.mark.skipif(why_not() is not None, reason=f"no pid namespace can be had here: {why_not()}"),
]
HOME = "/tmp/home-of-the-worker"
NAMES_OF_THE_HOST = """
import os, sys
words, found = sys.argv[1:], []
for pid in [name for name in os.listdir("/proc") if name.isdigit()] + ["self"]:
    for file in ("environ", "cmdline", "mem", "mountinfo", "mounts", "mountstats"):
        path = f"/proc/{pid}/{file}"
        try:
            if file == "mem" and pid == "1":
                data = b""
                with open(path, "rb", 0) as memory:
                    for line in open(f"/proc/{pid}/maps"):
                        start, end = (int(part, 16) for part in line.split()[0].split("-"))
                        if end - start < 1 << 26:
                            try:
                                memory.seek(start)
                                data += memory.read(end - start)
                            except (OSError, ValueError, OverflowError):
                                pass
            elif file != "mem":
                data = open(path, "rb").read()
        except OSError:
            continue
        if pid == "1" or file not in ("cmdline", "mem"):  # the words are arguments of this process
            found += [f"{word} in {path}" for word in words if word.encode() in data]
print(found)
"""


def what_is_named(*, account: bool = False) -> str:
    accounts = command_accounts(None) if account else None
    folders = WorkFolders(shared=account)
    ENVIRON.update(HOME=HOME, USER="the-worker", LOGNAME="the-worker", PATH=f"{HOME}/bin:/usr/bin:/bin:/opt/x")
    words = [HOME, "the-worker", "/opt/x", str(folders.root), folders.root.name]
    try:
        order = shell([PYTHON, "-c", NAMES_OF_THE_HOST, *words])
        ending, _ = ran(order, confine_all=True, folders=folders, isolated=True, accounts=accounts)
        assert list(folders.root.iterdir()) == [folders.root / ".lock"], "nothing is left of the run"
    finally:
        folders.close()
    said: str = result(ending)["output"]
    return said


@pytest.mark.parametrize(
    "how", ["as this user", pytest.param("with an account", marks=pytest.mark.skipif(os.geteuid() != 0, reason="root"))]
)
def test_nothing_in_proc_names_folders_and_variables_of_the_machine(how: str) -> None:
    done = subprocess.run([sys.executable, "-m", __name__, how], capture_output=True, text=True, check=False)
    assert (done.stdout, done.returncode) == ("[]\n", 0), done.stderr


@needs_another_user
def test_nothing_in_proc_names_folders_and_variables_where_an_ordinary_user_is_the_worker() -> None:
    done = run_as_another_user(sys.executable, "-m", __name__)
    assert (done.stdout, done.returncode) == ("[]\n", 0), done.stderr


FILLS = {
    "a file": "head -c 9000000 /dev/zero > file",
    "files in folders": "mkdir -p a/b; head -c 9000000 /dev/zero > a/b/file",
    "a deleted file": "exec 7> file; rm file; head -c 9000000 /dev/zero >&7",
    "another name of the folder": "head -c 9000000 /dev/zero > /tmp/file",
}


@pytest.mark.parametrize("fills", FILLS)
def test_the_limit_of_disk_space_holds(fills: str) -> None:
    setup = RunSetup(limits=ResourceLimits(disk=10_000_000))
    command = f"{FILLS[fills]}; head -c 9000000 /dev/zero > more; sleep 20"
    ending, _ = ran(shell(command, setup=setup), confine_all=True, isolated=True)
    assert ending.error is not None and ending.error.startswith("disk limit"), ending


def test_files_behave_as_in_any_folder() -> None:
    command = """
    echo one > a && ln a b && mv a c && mkdir d && mv d e && ln -s c s && cat s b && rm b && mkfifo p && touch e/x
    chmod 000 e/x && stat -c %a e/x && [ ! -e a ] && rm -rf e && ls
    """
    ending, _ = ran(shell(command), confine_all=True, isolated=True)
    assert result(ending)["output"] == "one\none\n0\nc\np\ns\n"


if __name__ == "__main__":
    sys.stdout.write(what_is_named(account=sys.argv[1:] == ["with an account"]))
