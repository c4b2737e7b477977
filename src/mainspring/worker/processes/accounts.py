"""The accounts that commands run as. A worker that is root gives them to an account without privileges.

Registered Python tasks are the operator's own code and keep the account of the worker.
"""

from __future__ import annotations

import os
import pwd
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from mainspring.domain.errors import InvalidInput
from mainspring.kernel.system_users import ensure_system_user, user_entry

DEFAULT_ACCOUNT = "mainspring-run"
_FALLBACK = "nobody"


@dataclass(frozen=True, slots=True)
class Account:
    """gains: setuid programs such as sudo have their effect. Only for accounts that the operator named."""

    name: str
    uid: int
    gid: int
    groups: tuple[int, ...]
    home: str
    gains: bool = True

    def for_child(self) -> dict[str, Any]:
        """What the process that becomes the command has to know."""
        return {"uid": self.uid, "gid": self.gid, "groups": list(self.groups), "gains": self.gains}

    def environment(self, folder: str) -> dict[str, str]:
        """HOME is `folder` if the account has none."""
        home = self.home if os.path.isdir(self.home) else folder  # noqa: PTH112
        return {"HOME": home, "USER": self.name, "LOGNAME": self.name}


class NotAllowed(Exception):
    """A job names a user that this worker does not allow."""


@dataclass(frozen=True, slots=True)
class CommandAccounts:
    """usual: of commands whose job names no user; None for that of the worker. allowed: the users that jobs may name.
    notices: what the operator should know, for the log."""

    usual: Account | None = None
    allowed: Mapping[str, Account | None] = field(default_factory=dict)
    notices: tuple[str, ...] = ()

    @property
    def change(self) -> bool:
        """Whether a command may run as another user than the worker."""
        return self.usual is not None or any(account is not None for account in self.allowed.values())

    def choose(self, name: str | None) -> Account | None:
        """The account for a job that names this user, or none."""
        if name is None or name == (own_name() if self.usual is None else self.usual.name):
            return self.usual
        if name not in self.allowed:
            raise NotAllowed(name)
        return self.allowed[name]


def own_name() -> str:
    """The name of the user that this process runs as, or its number."""
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())


def command_accounts(run_as: str | None, allow: Iterable[str] = ()) -> CommandAccounts:
    """The accounts of a worker with these options. Creates the default account if root needs it and it is missing."""
    notices: list[str] = []
    allowed = {name: _named(name, "run_as_allow") for name in allow}
    usual = _default_account(notices) if run_as is None and os.geteuid() == 0 else None
    if run_as is not None:
        usual = _named(run_as, "run_as")
        if usual is None and os.geteuid() == 0:
            notices.append(
                "--run-as root: whoever may submit a job to this worker is root on this machine. Give commands an "
                "account without privileges, unless all of them come from people who are root here anyway."
            )
    return CommandAccounts(usual, allowed, tuple(notices))


def _named(name: str, option: str) -> Account | None:
    """The account with this name. None if it is that of the worker."""
    try:
        entry = pwd.getpwnam(name)
    except KeyError:
        raise InvalidInput(
            f"there is no user {name!r} on this machine", field=option, hint="create the user, or name another"
        ) from None
    if entry.pw_uid == os.geteuid():
        return None
    if os.geteuid() != 0:
        raise InvalidInput(
            f"this worker runs as {own_name()} and cannot start commands as {name}",
            field=option,
            hint=f"only a worker that is root can; start the worker as {name}, or leave the option out",
        )
    return _account(entry)


def _account(entry: pwd.struct_passwd, *, gains: bool = True) -> Account:
    groups = tuple(os.getgrouplist(entry.pw_name, entry.pw_gid))
    return Account(entry.pw_name, entry.pw_uid, entry.pw_gid, groups, entry.pw_dir, gains)


def _default_account(notices: list[str]) -> Account:
    entry, said = ensure_system_user(DEFAULT_ACCOUNT)
    if entry is not None and said:
        notices.append(f"{said}, which commands run as")
    if entry is None:
        entry = user_entry(_FALLBACK)
        notices.append(
            f"the system user {DEFAULT_ACCOUNT} could not be created ({said}); commands run as {_FALLBACK}, which "
            f"other services may use too. Name an account with --run-as."
        )
    if entry is None or entry.pw_uid == 0:
        raise InvalidInput(
            f"this worker is root, and there is no account for its commands: {DEFAULT_ACCOUNT} could not be created "
            f"({said})",
            field="run_as",
            hint="create a user and name it with --run-as",
        )
    return _account(entry, gains=False)
