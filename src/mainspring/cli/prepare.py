"""Prepares a command for Typer: its shared options, the settings file, and the environment while it runs."""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

import typer

from mainspring.cli.commands import APART
from mainspring.cli.connect import Server
from mainspring.cli.extras import require_extra
from mainspring.cli.shared_options import SHARED, keyword, parameters_of
from mainspring.kernel.trust import CA_VARIABLE, INSECURE_VARIABLE
from mainspring.store.database import Database, Pooling, checked_url

_SETTINGS = "mainspring.settings"


def _configure(context: typer.Context, file: Path | None) -> None:
    """Read the settings file before any other option, so that it can give their defaults."""
    from mainspring.cli.settings_file import FILE_NAME, read_settings

    if file is None and not os.path.lexists(FILE_NAME):
        return
    settings = read_settings(file, _key(context))
    if settings is not None:
        context.default_map = settings.options
        context.meta[_SETTINGS] = settings


def _key(context: Any) -> str:
    """`job list` for `mainspring job list`. A verb with a module of its own has the name of the noun alone."""
    names: list[str] = []
    while context.parent is not None:
        names.insert(0, context.info_name or "")
        context = context.parent
    return names[0] if tuple(names) in APART else " ".join(filter(None, names))


ConfigOption = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="FILE",
        envvar="MAINSPRING_CONFIG",
        help="Settings for what neither options nor variables say. Default: mainspring.toml in this folder.",
        is_eager=True,
        callback=_configure,
        rich_help_panel="Connection",
        show_default=False,
    ),
]


def prepared(command: Callable[..., None]) -> Callable[..., None]:
    """The command with the options that its parameters stand for, and --config."""
    own = inspect.signature(command).parameters
    parameters = [*parameters_of(command).values(), keyword("config", ConfigOption, None)]
    shared = [option for name in SHARED if name in own for option in SHARED[name]]
    context = inspect.Parameter("context", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)

    @wraps(command)
    def with_options(*, context: typer.Context, **values: Any) -> None:
        given = {name: values.pop(name) for name in (*shared, "config")}
        require_extra(_key(context))
        from_file = _from_file(context)
        try:
            if "database" in own:
                values["database"] = _database(context, given)
            if "server" in own:
                values["server"] = Server(given["url"], given["token_file"], given["data"])
            with _as_environment(given, from_file):
                command(**values)
        except Exception as error:
            _name_the_file(context, error, from_file)
            raise

    shown: Any = with_options
    shown.__signature__ = inspect.Signature([*parameters, context])
    shown.__annotations__ = {each.name: each.annotation for each in (*parameters, context)}
    del shown.__wrapped__
    return with_options


def _from_file(context: typer.Context) -> dict[str, str]:
    """The variables that the settings file sets. Raises Forbidden if it says what a file that was only found may not
    say."""
    settings = context.meta.get(_SETTINGS)
    if settings is None:
        return {}
    from mainspring.cli.settings_file import environment_of, refuse_withheld

    given = [name for name in context.params if _source(context, name) in _RANKS[:2]]
    refuse_withheld(settings, os.environ, given)
    return environment_of(settings, os.environ)


def _name_the_file(context: typer.Context, error: Exception, variables: dict[str, str]) -> None:
    settings = context.meta.get(_SETTINGS)
    if settings is not None:
        from mainspring.cli.settings_file import name_the_file

        options = [name for name in settings.options if _source(context, name) == _SETTINGS_FILE]
        name_the_file(error, settings, [*options, *(name for name in settings.variables if name in variables)])


def place_in_file(context: Any, parameter: Any) -> str | None:
    """The settings file and the key that the value of a parameter is from. None if it is from elsewhere."""
    settings = context.meta.get(_SETTINGS)
    name: str = getattr(parameter, "name", None) or ""
    if settings is None or name not in settings.options or _source(context, name) != _SETTINGS_FILE:
        return None
    return f"{settings.path}: {settings.places[name]}"


@contextmanager
def _as_environment(given: dict[str, Any], wanted: dict[str, str]) -> Iterator[None]:
    """Set the variables while the command runs."""
    if given.get("ca") is not None:
        wanted[CA_VARIABLE] = str(Path(given["ca"]).absolute())
    if given.get("insecure_http"):
        wanted[INSECURE_VARIABLE] = "1"
    before = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _database(context: typer.Context, given: dict[str, Any]) -> Database | None:
    """Raises InvalidInput if a URL is not one of PostgreSQL."""
    from mainspring.domain.durations import parse_duration
    from mainspring.domain.errors import InvalidInput

    wait = parse_duration(given["database_wait"], "database_wait")
    url, direct_url = (_database_url(context, name, given) for name in ("database_url", "direct_url"))
    pooling = given["pgbouncer"]
    if url is None:
        for name, value in (("direct_url", direct_url), ("pgbouncer", pooling is not Pooling.NONE)):
            if value and _source(context, name) == _COMMAND_LINE:
                raise InvalidInput(
                    "it needs the URL of a database", field=name, hint="give --database-url or --database-url-file"
                )
        return None
    direct = None if direct_url is None else checked_url(direct_url, "direct_url")
    return Database(checked_url(url), direct, Pooling(pooling), wait)


def _database_url(context: typer.Context, name: str, given: dict[str, Any]) -> str | None:
    """The URL from the option or the file. The command line counts more than the environment, and that more than
    mainspring.toml. In the environment and in mainspring.toml the URL counts more than the file."""
    from mainspring.domain.errors import InvalidInput

    file_name, flag = f"{name}_file", f"--{name.replace('_', '-')}"
    url: str | None = given[name] or None
    file: Path | None = given[file_name]
    url_from, file_from = _source(context, name), _source(context, file_name)
    if url_from == _COMMAND_LINE and url and _has_password(url):
        sys.stderr.write(
            f"warning: `ps` shows the password in {flag} to all users of this machine; use {flag}-file, "
            f"MAINSPRING_{name.upper()} or PGPASSFILE\n"
        )
    if file is None or (url and _RANKS.index(url_from) < _RANKS.index(file_from)):
        return _gets_no_password(context, name, url, url_from)
    if url and url_from == file_from:
        if url_from != _COMMAND_LINE:
            return _gets_no_password(context, name, url, url_from)
        raise InvalidInput("the database is given twice", field=file_name, hint="leave one of the two out")
    try:
        text = file.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(f"cannot read the file {file}: {error}", field=file_name) from None
    if not text:
        raise InvalidInput(f"the file {file} is empty", field=file_name)
    return _gets_no_password(context, file_name, text, file_from)


def _gets_no_password(context: typer.Context, name: str, url: str | None, source: str) -> str | None:
    """The URL. Raises Forbidden if a settings file that was only found would decide where a password of the environment
    goes."""
    settings = context.meta.get(_SETTINGS)
    if not url or source != _SETTINGS_FILE or settings is None or not settings.found or _has_password(url):
        return url
    for variable in ("PGPASSWORD", "PGPASSFILE"):
        if os.environ.get(variable):
            from mainspring.domain.errors import Forbidden

            raise Forbidden(
                f"{variable} is not used for the database of {settings.path}: the file was only found here, it can "
                "have come with a repository",
                code="settings_not_named",
                field=settings.places[name],
                hint=f"set MAINSPRING_{name.upper()}, or name the file with --config or MAINSPRING_CONFIG",
            )
    return url


def _has_password(url: str) -> bool:
    try:
        return bool(urlsplit(url).password)
    except ValueError:  # the URL is checked later
        return True


_COMMAND_LINE = "COMMANDLINE"
_SETTINGS_FILE = "DEFAULT_MAP"
_RANKS = (_COMMAND_LINE, "ENVIRONMENT", _SETTINGS_FILE, "DEFAULT")


def _source(context: typer.Context, name: str) -> str:
    source = context.get_parameter_source(name)
    return source.name if source is not None and source.name in _RANKS else _RANKS[-1]
