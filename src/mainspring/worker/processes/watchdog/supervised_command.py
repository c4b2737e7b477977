"""One command under a supervisor, with all processes that it starts, until the last of them is gone.

The supervisor is their subreaper: when it has no children left, the tree is gone, even if processes forked twice or
called setsid. When the command exits, the processes it leaves behind are killed, unless it was asked to terminate: then
they may continue until the worker asks for a kill. An isolated supervisor signals all processes of its namespace at
once. Any other supervisor walks the tree.
"""

from __future__ import annotations

import os
import signal
import time
from typing import Any

from . import cgroup, child, namespaces, tree
from . import resource_limits as limits
from .tree_use import usage_of

# How soon to check again for processes that a kill missed: there is no event for a process that was just forked.
_FIRST_PAUSE, _LONGEST_PAUSE = 0.01, 0.25
_NEVER = float("inf")
# A sandbox has two processes of its own: the one that waits outside, and the first one inside.
_WRAPPER_PROCESSES = 2


class SupervisedCommand:
    def __init__(
        self,
        order: dict[str, Any],
        output: int,
        errors: int,
        channel: int | None,
        *,
        control: int,
        worker: int,
        supervisor: int,
        isolated: bool,
        group: cgroup.Group | None,
    ) -> None:
        """Starts the command. `control` is the socket of the supervisor. `worker` and `supervisor` are pids outside of
        the namespace. `group` is the control group of the supervisor, in which its commands are born."""
        self._us = os.getpid()
        self._isolated = isolated
        self._wrapper: str = order["wrapper"]
        given: dict[str, Any] = order["limits"]
        if self._wrapper and given["processes"]:
            given = {**given, "processes": given["processes"] + _WRAPPER_PROCESSES}
        self._given = given
        self._shared = group
        self._kills_before, self._refused_before = cgroup.oom_kills(group), cgroup.refused(group)
        bounded = bool(given["processes"]) and cgroup.bounds_processes(group, given["processes"])
        self._cgroup = cgroup.create(worker, {**given, "processes": None} if bounded else given, supervisor)
        self._spent_before = limits.cpu_of_the_reaped()
        self._peak = 0
        self._asked = False
        self._killing = False
        self._failed = False
        self._enforced: str | None = None  # by the watchdog
        self._pause = _FIRST_PAUSE
        self.command = os.fork()
        if self.command == 0:
            child.become(order, output, errors, channel, control, self._cgroup, self._us)
        bounded = bounded or self._cgroup is not None or child.has_own_users(order)
        self._gauge = limits.ResourceGauge(self._us, given, self._cgroup, isolated=isolated, bounded=bounded)
        self._plan_check()

    @property
    def next_check(self) -> float:
        """When to call `check` again if nothing happens before (monotonic)."""
        return self._check_at

    def terminate(self) -> None:
        self._asked = True
        if not tree.LINUX:
            self._signal_group(signal.SIGTERM)
        if self._isolated and not self._wrapper:
            namespaces.signal_everything(signal.SIGTERM)
            return
        pids = tree.descendants(self._us)
        if self._wrapper:  # when a sandbox ends, everything in it is killed without a grace
            pids = [pid for pid in pids if not _is_named(pid, self._wrapper)]
        tree.signal_all(pids, signal.SIGTERM)

    def kill(self) -> None:
        self._killing = True
        self._plan_check()
        if self._cgroup is not None:
            cgroup.kill(self._cgroup)
        if self._isolated:
            namespaces.signal_everything(signal.SIGKILL)
        elif tree.LINUX:
            tree.kill_below(self._us)
        else:
            self._signal_group(signal.SIGKILL)

    def sample(self) -> str:
        """Return what the tree uses now, as a line."""
        cpu, resident = usage_of(tree.descendants(self._us))
        self._peak = max(self._peak, resident)
        return f"usage {cpu + limits.cpu_of_the_reaped() - self._spent_before:.6f} {resident}"

    def end_for(self, breach: str) -> None:
        """End the command, because all runs together exceed their limit and this one uses the most."""
        self._enforced = breach

    def limit(self, given: dict[str, Any]) -> None:
        self._gauge.set(given)
        self._plan_check()

    def check(self) -> tuple[list[str], bool]:
        """Reap ended processes and check the limits of the others. Returns the news, and whether the tree is gone."""
        news: list[str] = []
        if self._reap(news):
            self._finish(news)
            return news, True
        if self._killing:
            self.kill()
        elif self._enforced is not None or time.monotonic() >= self._check_at:
            breach = self._enforced or self._gauge.breach() or self._killed_for_all()
            self._plan_check()
            if breach is not None:
                news.append(f"breach {breach}")
                self.kill()
        return news, False

    def _reap(self, news: list[str]) -> bool:
        try:
            while True:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
                if pid == 0:
                    return False
                if os.WIFSTOPPED(status):
                    tree.stop_tracing(pid)
                    continue
                self._peak = max(self._peak, limits.peak_in(usage))
                self._gauge.reaped(pid, usage)
                if pid == self.command:
                    self._failed = status != 0
                    news.append(f"exited {os.waitstatus_to_exitcode(status)}")
                    self._killing = self._killing or not self._asked
        except ChildProcessError:
            return True

    def _finish(self, news: list[str]) -> None:
        peak = max(self._peak, self._gauge.peak)
        if self._cgroup is not None:
            enforced = cgroup.breach(self._cgroup, self._given)
            if enforced is not None and self._failed:  # a command that handled a failed fork has not failed
                news.insert(0, f"breach {enforced}")
            cgroup.remove(self._cgroup)
        if self._failed and (breach := self._killed_for_all() or self._refused()) is not None:
            news.insert(0, f"breach {breach}")
        spent = limits.cpu_of_the_reaped() - self._spent_before
        news.append(f"gone {spent:.6f} {peak}")

    def _killed_for_all(self) -> str | None:
        """The kernel has killed a process of this tree, because all runs together had no memory left."""
        return "all-memory" if cgroup.oom_kills(self._shared) > self._kills_before else None

    def _refused(self) -> str | None:
        """The kernel has refused this tree another process."""
        return "processes" if cgroup.refused(self._shared) > self._refused_before else None

    def _plan_check(self) -> None:
        if self._killing:
            self._check_at = time.monotonic() + self._pause
            self._pause = min(self._pause * 2, _LONGEST_PAUSE)
        else:
            self._check_at = time.monotonic() + self._gauge.look_in if self._gauge.active else _NEVER

    def _signal_group(self, number: int) -> None:
        try:
            os.killpg(self.command, number)
        except (ProcessLookupError, PermissionError):
            return


def _is_named(pid: int, name: str) -> bool:
    try:
        return tree.read_file(f"/proc/{pid}/comm").strip() == name.encode()
    except OSError:
        return False
