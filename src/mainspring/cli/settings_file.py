"""mainspring.toml: settings for what the command line and the environment do not say.

The file of the working folder is read without being asked for. In a folder of another user it could start that user's
code as us, so it has to be our own. It can also have come with a repository, so it does not say where tokens or output
go, or which data folder is used. A file that --config names is not questioned.
"""

from __future__ import annotations

import difflib
import os
import stat
import sys
import tomllib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from mainspring.cli.settings import (
    CALLING,
    CLIENTS,
    CONNECTION,
    OF_CLIENTS,
    OWN_DATA,
    STARTING,
    VARIABLES,
    Setting,
    all_settings,
    settings_of,
)

FILE_NAME = "mainspring.toml"
CONFIG_VARIABLE = "MAINSPRING_CONFIG"
_URLS = ("database_url", "direct_url")
_TOKENS = ("MAINSPRING_TOKEN", "MAINSPRING_TOKEN_FILE")
# Where servers send the output of runs, what they call for notifications, under which names they answer browsers, and
# which providers they believe in sign-ins. And where copies of the whole database go, with which key, and which of them
# are removed.
_OF_SERVERS = (
    *("log_store", "notify_allow", "apprise_schemes", "public_url", "allow_host", "oidc", "sources"),
    *("backup", "backup_every", "backup_keep", "backup_key"),
)
_NOTED = "_MAINSPRING_NOTED_CONFIG"  # the file that a process above has named to the user
_WORDS = {str: "a text", int: "a number", float: "a number", bool: "true or false", list: "a list of texts"}


@dataclass(frozen=True, slots=True)
class Settings:
    """What a file says for one command: defaults of its options by parameter name, and variables. places: where a
    parameter or a variable is in the file, such as `up.port`."""

    path: Path
    found: bool  # in the working folder, not by name
    withheld: tuple[Setting, ...] = ()  # those of the command that a file that was only found may not set
    options: dict[str, Any] = field(default_factory=dict)
    variables: dict[str, str] = field(default_factory=dict)
    places: dict[str, str] = field(default_factory=dict)


def read_settings(named: Path | None, verb: str) -> Settings | None:
    """The settings of the file, or None if there is none. Raises InvalidInput or Forbidden."""
    from mainspring.domain.errors import InvalidInput

    path = Path.cwd() / FILE_NAME if named is None else named
    try:
        content = _own(path) if named is None else path.read_bytes()
        if content is None:
            return None
        tables = tomllib.loads(content.decode())
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InvalidInput(f"{path} cannot be read: {error}", code="invalid_settings", field="config") from None
    chosen = _checked(tables, verb, path)
    _warn_of_readers(path, tables)
    if named is None and verb in STARTING and os.environ.get(_NOTED) != str(path):
        sys.stderr.write(f"note: using the settings in {path}\n")
    group = verb if verb in STARTING else CLIENTS
    variables = {setting.key: setting.variable for setting in VARIABLES if group in setting.commands}
    of_command = {setting.key: setting for setting in settings_of(verb)}
    withheld = [] if named is not None else _withheld(chosen, verb, of_command)
    settings = Settings(path.absolute(), named is None, tuple(withheld))
    for key, value in chosen.items():
        setting = of_command.get(key)
        if any(each.key == key for each in withheld):
            settings.places[key] = f"{verb}.{key}" if key in tables.get(verb, {}) else key
            continue
        if key in variables:
            name = variables[key]
            settings.variables[name] = str(value)
        elif setting is None:
            continue
        elif key in OF_CLIENTS and verb not in OWN_DATA:
            name = setting.variable
            settings.variables[name] = str(value)
        else:
            name = setting.parameter
            settings.options[name] = value
        settings.places[name] = f"{verb}.{key}" if key in tables.get(verb, {}) else key
    return settings


def name_the_file(error: Exception, settings: Settings, used: Collection[str]) -> None:
    """Let an error about a value of the file say so. `used`: the parameters and variables that the file has set."""
    from mainspring.domain.errors import MainspringError, Unavailable
    from mainspring.sdk.client.core import ELSEWHERE

    url = settings.variables.get("MAINSPRING_URL", "")
    if isinstance(error, Unavailable) and "MAINSPRING_URL" in used and error.hint:
        if any(address and address.rstrip("/") in error.detail for address in url.split(",")):
            place = f"its address is `{settings.places['MAINSPRING_URL']}` in {settings.path}"
            error.hint = error.hint.replace(ELSEWHERE, place)
        return
    if not isinstance(error, MainspringError) or error.field is None:
        return
    for name in used:
        place = settings.places[name]
        if error.field in (name, place.rpartition(".")[2]):
            detail = error.detail.removeprefix(f"{error.field}: ")
            error.detail, error.field = f"{settings.path}: {place}: {detail}", place
            return


def environment_of(settings: Settings, environ: Mapping[str, str]) -> dict[str, str]:
    """The variables that the file sets: those that the environment does not have. A token in either form is one.

    The processes that this one starts get the name of a file that the user has named. One that was only found they find
    by themselves: with its name they would trust it more than we do.
    """
    has_token = any(environ.get(name) for name in _TOKENS)
    return {
        name: value
        for name, value in settings.variables.items()
        if not (has_token if name in _TOKENS else environ.get(name))
    } | {_NOTED if settings.found else CONFIG_VARIABLE: str(settings.path)}


def refuse_withheld(settings: Settings, environ: Mapping[str, str], given: Collection[str]) -> None:
    """Raises Forbidden if the command would use a setting that a file that was only found may not set. `given`: the
    parameters that options or variables say."""
    from mainspring.domain.errors import Forbidden

    has_token = "token_file" in given or any(environ.get(name) for name in _TOKENS)
    for setting in settings.withheld:
        is_token = setting.variable in _TOKENS
        if has_token if is_token else setting.parameter in given or environ.get(setting.variable):
            continue
        place, option = settings.places[setting.key], setting.option.partition(",")[0]
        instead = [f"give {option}"] if option else []
        instead += [f"set {setting.variable}"] if setting.variable else []
        raise Forbidden(
            f"{settings.path}: {place} is not used: the file was only found here, it can have come with a repository",
            code="settings_not_named",
            field=place,
            hint=f"{' or '.join(instead)}, or name the file: --config {FILE_NAME} or {CONFIG_VARIABLE}",
        )


def _withheld(chosen: Collection[str], verb: str, of_command: Mapping[str, Setting]) -> list[Setting]:
    """Those of the `chosen` keys that a file that was only found may not set for this command: where tokens go, which
    ones, and whom we trust on the way. And the data folder: it holds tokens and a database. And what kinds of task may
    use at a worker, such as files with secrets, and what a server sends elsewhere."""
    keys = {"data", *_OF_SERVERS}
    if verb in STARTING:
        from mainspring.cli.task_options import kind_options

        keys |= {option.name for _, options in kind_options() for option in options.of_a_worker}
    if verb not in STARTING or verb in CALLING:
        keys |= {*CONNECTION, "app_token_file"}
    found = [setting for key, setting in of_command.items() if key in keys and key in chosen]
    if "token" in chosen and "token_file" in of_command:
        found += [setting for setting in VARIABLES if setting.key == "token"]
    return found


def _own(path: Path) -> bytes | None:
    """The content of a file in the working folder that no other user controls."""
    from mainspring.domain.errors import Forbidden
    from mainspring.kernel.ownership import ForeignFile, read_own

    try:
        path.lstat()
    except OSError:
        return None
    try:
        return read_own(path.parent, path.name, follow=False)
    except ForeignFile as error:
        raise Forbidden(
            str(error),
            code="settings_not_ours",
            field="config",
            hint=f"run the command in another folder, or name a settings file with --config or {CONFIG_VARIABLE}",
        ) from None


def _checked(tables: dict[str, Any], verb: str, path: Path) -> dict[str, Any]:
    """The values for this command. Every key of the file is checked, also those of other commands."""
    from mainspring.domain.errors import InvalidInput

    settings = all_settings()
    everywhere: dict[str, Any] = {}
    here: dict[str, Any] = {}
    for key, value in tables.items():
        if isinstance(value, dict):
            if key not in STARTING:
                raise InvalidInput(
                    f"{path} has a table [{key}], which is not a command that starts something",
                    code="unknown_setting",
                    field=key,
                    expected=", ".join(f"[{each}]" for each in STARTING),
                )
            own = [setting for setting in settings if key in setting.commands]
            values = {name: _value(name, given, own, path, f"{key}.") for name, given in value.items()}
            here |= values if key == verb else {}
        else:
            everywhere[key] = _value(key, value, settings, path)
    return everywhere | here


def _value(key: str, value: Any, settings: Iterable[Setting], path: Path, where: str = "") -> Any:
    from mainspring.domain.errors import InvalidInput

    kinds = [setting.kind for setting in settings if setting.key == key]
    if not kinds:
        close = difflib.get_close_matches(key, [setting.key for setting in settings], 1)
        raise InvalidInput(
            f"{path} has {where}{key}, which is not a setting",
            code="unknown_setting",
            field=f"{where}{key}",
            hint=f"did you mean {close[0]}?" if close else "docs/operating.md has all settings",
        )
    kind = kinds[0]
    fits = type(value) is kind or (kind is float and type(value) is int)
    if not fits or (isinstance(value, list) and not all(isinstance(each, str) for each in value)):
        raise InvalidInput(
            f"{path}: {where}{key} is {_shown(value)}",
            code="invalid_settings",
            field=f"{where}{key}",
            expected=_WORDS[kind],
        )
    return value


def _shown(value: Any) -> str:
    """The kind of a value. The value itself can be a secret."""
    if isinstance(value, list):
        return "a list with something else in it"
    return next((words for kind, words in _WORDS.items() if type(value) is kind), "of another kind")


def _warn_of_readers(path: Path, tables: dict[str, Any]) -> None:
    values = [tables, *(table for table in tables.values() if isinstance(table, dict))]
    secret = any("token" in table or any(_has_password(table.get(key)) for key in _URLS) for table in values)
    if secret and path.stat().st_mode & (stat.S_IRGRP | stat.S_IROTH):
        sys.stderr.write(
            f"warning: others can read {path}, which contains a password or a token; run: chmod 600 {path}\n"
        )


def _has_password(url: Any) -> bool:
    try:
        return isinstance(url, str) and bool(urlsplit(url).password)
    except ValueError:
        return True


def config_file(environ: Mapping[str, str] | None = None) -> list[Path]:
    """The settings file that this command uses. It can hold secrets."""
    named = (os.environ if environ is None else environ).get(CONFIG_VARIABLE)
    path = Path(named) if named else Path.cwd() / FILE_NAME
    return [path] if named or path.exists() else []
