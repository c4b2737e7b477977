"""Commands of a root worker run as an account without privileges, and cannot come back from it.

Needs root for what root does; the account `mainspring-run` is created. The refusals of an ordinary user are tried in a
user namespace (`unshare` of util-linux) if the tests run as root.
"""

from __future__ import annotations

import asyncio
import os
import pwd
import stat
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
import pytest
import uvloop

from mainspring.domain.errors import InvalidInput
from mainspring.kinds.shell.executor import ShellExecutor
from mainspring.wire.execution import RunSetup
from mainspring.worker.execution.attempt import Attempt, AttemptEnding, key_of
from mainspring.worker.execution.work_folders import WorkFolders
from mainspring.worker.processes.accounts import DEFAULT_ACCOUNT, CommandAccounts, command_accounts
from mainspring.worker.processes.watchdog.namespaces import why_not
from mainspring.worker.processes.watchdog_client import WatchdogClient
from tests.eventually import PATIENCE
from tests.worker.exchange_server import an_order

from .test_outliving import AS_ORDINARY_USER, HERE, needs_root, needs_user_namespaces

OTHER = "daemon"  # an account that every system has


def ends(
    accounts: CommandAccounts, *orders: tuple[str, str | None], folders: WorkFolders | None = None
) -> list[AttemptEnding]:
    """How these commands end, each with the user that its job names. They run at the same time."""

    async def run() -> list[AttemptEnding]:
        watchdog = WatchdogClient()
        watchdog.start()
        executor = ShellExecutor(
            watchdog, kill_grace=0.3, accounts=accounts, isolated=why_not() is None, folders=folders
        )
        given = [an_order("shell", command=text, setup=RunSetup(run_as=name)) for text, name in orders]
        try:
            async with asyncio.timeout(PATIENCE):
                return await asyncio.gather(*(executor.execute(Attempt(order, key_of(order), 0.0)) for order in given))
        finally:
            watchdog.stop()

    return uvloop.run(run())


def output(ending: AttemptEnding) -> list[str]:
    assert ending.result is not None, ending.error
    text: str = msgspec.json.decode(ending.result)["output"]
    return text.splitlines()


@needs_root
def test_a_command_of_a_root_worker_has_no_privileges_and_cannot_get_any() -> None:
    look = (
        "id -u; id -un; id -G; echo $HOME $USER $LOGNAME; pwd; "
        "grep -E '^(Cap(Prm|Eff|Amb)|NoNewPrivs)' /proc/self/status; "
        "echo told > /dev/stderr; stat -c '%a %U' . ..; ls .. 2>&1 || true"
    )
    (ending,) = ends(command_accounts(None), (look, None))
    user, name, groups, names, folder, *rest = output(ending)
    account = pwd.getpwnam(DEFAULT_ACCOUNT)
    assert (int(user), name, groups) == (account.pw_uid, DEFAULT_ACCOUNT, str(account.pw_gid))
    assert names == f"{folder} {DEFAULT_ACCOUNT} {DEFAULT_ACCOUNT}", "it has no home, so that is the folder of the run"
    assert [line.split()[1] for line in rest[:4]] == ["0" * 16, "0" * 16, "0" * 16, "1"]
    assert rest[4:7] == ["told", f"700 {DEFAULT_ACCOUNT}", "711 root"]
    assert "Permission denied" in rest[7]
    assert not Path(folder).exists()


@needs_root
def test_a_permission_error_names_the_account_and_the_option(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    script = tmp_path / "script"
    script.write_text("#!/bin/sh\n")
    script.chmod(0o755)
    unreachable = WorkFolders(str(tmp_path), shared=True)
    accounts = command_accounts(None)
    (read, executed, plain) = ends(accounts, (f"cat {script}", None), (str(script), None), ("exit 3", None))
    (nowhere,) = ends(accounts, ("true", None), folders=unreachable)
    unreachable.close()
    for ending in (read, executed, nowhere):
        assert ending.error is not None
        assert "Permission denied" in ending.error
        assert f"run as {DEFAULT_ACCOUNT}" in ending.error
        assert "--run-as" in ending.error
    assert plain.error == "exit code 3"
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o700, "the modes of parents are not opened"


@needs_root
def test_a_job_may_name_a_user_only_if_the_worker_allows_it() -> None:
    accounts = command_accounts(None, [OTHER])
    whoami = "id -un; grep NoNewPrivs /proc/self/status"
    usual, named, allowed, root, unknown = ends(
        accounts, *((whoami, name) for name in (None, DEFAULT_ACCOUNT, OTHER, "root", "no-such-user"))
    )
    assert output(usual) == output(named) == [DEFAULT_ACCOUNT, "NoNewPrivs:\t1"]
    assert output(allowed) == [OTHER, "NoNewPrivs:\t0"]
    for ending, name in ((root, "root"), (unknown, "no-such-user")):
        assert ending.error is not None
        assert ending.error.startswith(f"run_as: this worker does not run commands as {name}; ")
        assert "--run-as-allow" in ending.error
        assert not ending.retry


@needs_root
def test_root_may_run_commands_as_root_and_is_told_what_that_means() -> None:
    accounts = command_accounts("root")
    assert "is root on this machine" in accounts.notices[0]
    assert output(ends(accounts, ("id -u", None))[0]) == ["0"]
    assert output(ends(accounts, ("id -u", "root"))[0]) == ["0"]


@needs_root
def test_a_run_of_the_same_account_can_neither_see_nor_reach_another() -> None:
    if why_not() is not None:
        pytest.skip("pid namespaces cannot be had here")
    with TemporaryDirectory(dir="/tmp") as folder:
        Path(folder).chmod(0o777)
        held, looked = f"{folder}/held", f"{folder}/looked"
        look = "ls .. ; ls -d ../*/file; for p in /proc/[0-9]*; do ls $p/cwd/file; done"
        holder, looker = ends(
            command_accounts(None),
            (f"echo secret > file; touch {held}; until [ -e {looked} ]; do sleep 0.01; done", None),
            (f"until [ -e {held} ]; do sleep 0.01; done; ({look}) 2>/dev/null; touch {looked}", None),
        )
    assert output(holder) == []
    assert output(looker) == []


def test_a_user_that_does_not_exist_is_refused() -> None:
    for given in ({"run_as": "no-such-user"}, {"run_as": None, "allow": ["no-such-user"]}):
        with pytest.raises(InvalidInput, match="there is no user 'no-such-user'"):
            command_accounts(**given)  # type: ignore[arg-type]


@needs_user_namespaces
def test_only_root_may_name_another_user(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("t")
    me = "mainspring.worker.processes.accounts"
    own = f"import os, pwd; from {me} import *; print(command_accounts(None).usual, command_accounts(None).change)"
    refused = [sys.executable, "-m", "mainspring", "worker", "--token-file", str(tmp_path / "token"), "--run-as", OTHER]
    for argv, code, words in (
        ([sys.executable, "-c", own], 0, "None False"),
        (refused, 2, f"cannot start commands as {OTHER}"),
        ([*refused[:-2], "--run-as-allow", OTHER], 2, "only a worker that is root can"),
    ):
        done = subprocess.run([*AS_ORDINARY_USER, *argv], cwd=HERE, capture_output=True, text=True, check=False)
        assert (done.returncode, words in done.stdout + done.stderr) == (code, True), done.stdout + done.stderr


def test_a_worker_that_has_no_namespaces_and_no_account_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    from mainspring.kernel.logs import configure_logs
    from mainspring.worker.processes.isolation import find_isolation, log_how_commands_run

    configure_logs(role="worker", level="info")
    log_how_commands_run(CommandAccounts(), find_isolation(wanted=False))
    said = capsys.readouterr()
    name = pwd.getpwuid(os.geteuid()).pw_name
    assert f"commands run as {name}" in said.out + said.err
    assert "outlive their run" in said.out + said.err
