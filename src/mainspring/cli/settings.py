"""Every setting: its key in mainspring.toml, its option, its variable, and the commands that have it.

Settings are the options of the commands that start something, and those that say how a client reaches a server. Some
have only a variable. docs/operating.md has the table.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, get_args, get_origin

from mainspring.cli.commands import find_command
from mainspring.cli.shared_options import parameters_of

STARTING = ("up", "server", "scheduler", "worker", "connect", "migrate")
CALLING = ("worker", "connect")  # of these, those that call a server with a token
CLIENTS = "client commands"
# The client of the SDK reads these variables itself, so the options have none of their own.
OF_CLIENTS = {"url": "MAINSPRING_URL", "token_file": "MAINSPRING_TOKEN_FILE", "data": "MAINSPRING_DATA"}
OWN_DATA = ("up", "server")  # their option --data has a variable of its own
_A_CLIENT = "job list"
CONNECTION = (*OF_CLIENTS, "ca", "insecure_http")
_NOT_SETTINGS = ("help", "config", "json", "stage", "force")


@dataclass(frozen=True, slots=True)
class Setting:
    key: str
    parameter: str
    option: str
    variable: str
    commands: tuple[str, ...]
    kind: type
    default: str
    help: str


# Without an option: `ps` would show a token, and the others are for one process or another, however it is started.
VARIABLES = (
    Setting(
        "token", "", "", "MAINSPRING_TOKEN", ("worker", "connect", CLIENTS), str, "",
        "The token itself. It counts more than a file.",
    ),
    Setting(
        "history_days", "", "", "MAINSPRING_HISTORY_DAYS", ("up", "server", "scheduler"), int, "30",
        "For how many days ended runs, their attempts and their output are kept.",
    ),
    Setting(
        "audit_days", "", "", "MAINSPRING_AUDIT_DAYS", ("up", "server", "scheduler"), int, "400",
        "For how many days entries of the audit are kept, at least 30.",
    ),
    Setting(
        "event_days", "", "", "MAINSPRING_EVENT_DAYS", ("up", "server", "scheduler"), int, "7",
        "For how many days events of applications are kept, and their ids known.",
    ),
    Setting(
        "log_per_run", "", "", "MAINSPRING_LOG_PER_RUN", ("up", "server"), str, "200MiB",
        "How much output of a run PostgreSQL stores, all attempts together.",
    ),
    Setting(
        "log_per_tenant", "", "", "MAINSPRING_LOG_PER_TENANT", ("up", "server"), str, "5GiB",
        "How much output of a tenant PostgreSQL stores on one day.",
    ),
    Setting(
        "log_per_day", "", "", "MAINSPRING_LOG_PER_DAY", ("up", "server"), str, "20GiB",
        "How much output PostgreSQL stores on one day.",
    ),
    Setting(
        "requests_per_token", "", "", "MAINSPRING_REQUESTS_PER_TOKEN", ("up", "server"), str, "",
        "How often a token may call, such as 50/s. Without it: as often as it can.",
    ),
    Setting(
        "requests_per_address", "", "", "MAINSPRING_REQUESTS_PER_ADDRESS", ("up", "server"), str, "",
        "How often an address may call, such as 200/s. Without it: as often as it can.",
    ),
    Setting(
        "pass_env", "", "", "MAINSPRING_PASS_ENV", ("up", "worker"), str, "",
        "Variables of the worker that process tasks get, separated by commas.",
    ),
)  # fmt: skip
# Not in mainspring.toml.
OTHER_VARIABLES = {
    "MAINSPRING_CONFIG": "The settings file, as --config.",
    "MAINSPRING_MASTER_KEY": "The master keys of secrets, separated by commas.",
    "MAINSPRING_MASTER_KEY_FILE": "The file with the master keys of secrets.",
    "MAINSPRING_MASTER_KEY_COMMAND": "A command that prints the master keys of secrets.",
    "MAINSPRING_SECRET_STORES": "The file that names stores of secrets outside.",
    "MAINSPRING_DEBUG": "If set, the command line shows tracebacks.",
}


def settings_of(verb: str) -> list[Setting]:
    """The settings of one command: `up` or `job list`."""
    found = []
    for parameter in parameters_of(find_command(verb).function).values():
        kind, *metadata = get_args(parameter.annotation) or (parameter.annotation,)
        options = [each for each in metadata if hasattr(each, "param_decls")]
        if not options:
            continue
        # In an annotation, the first name is where the default would be.
        named = (options[0].default, *(options[0].param_decls or ()))
        written = [name for name in named if isinstance(name, str) and name.startswith("--")]
        if not written:
            continue
        key = written[0].partition("/")[0].removeprefix("--").replace("-", "_")
        if key in _NOT_SETTINGS or (verb not in STARTING and key not in CONNECTION):
            continue
        found.append(
            Setting(
                key,
                parameter.name,
                ", ".join(written),
                options[0].envvar or OF_CLIENTS.get(key, ""),
                (verb if verb in STARTING else CLIENTS,),
                _kind(kind),
                _default(parameter.default, options[0].show_default),
                options[0].help or "",
            )
        )
    return found


@lru_cache(maxsize=1)
def all_settings() -> tuple[Setting, ...]:
    """All of them. A key that means the same in several commands is there once."""
    merged: dict[tuple[str, str], Setting] = {}
    for setting in (*(setting for verb in (*STARTING, _A_CLIENT) for setting in settings_of(verb)), *VARIABLES):
        before = merged.setdefault((setting.key, setting.help), setting)
        commands = tuple(dict.fromkeys((*before.commands, *setting.commands)))
        merged[setting.key, setting.help] = replace(before, commands=commands)
    return tuple(merged.values())


def _kind(annotation: Any) -> type:
    kinds = [each for each in get_args(annotation) if each is not type(None)]
    kind = annotation if get_origin(annotation) is list or not kinds else kinds[0]
    if get_origin(kind) is list:
        return list
    return kind if kind in (bool, int, float) else str


def _default(value: Any, shown: Any) -> str:
    if isinstance(shown, str):
        return shown
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)
