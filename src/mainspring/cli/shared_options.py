"""Options that several commands get when they are registered, because they mean the same in all of them.

Commands that call a server get --ca and --insecure-http. They act as MAINSPRING_CA and MAINSPRING_INSECURE_HTTP do: for
all clients of the process, also those in tasks of a worker. Commands that use the database get --database-url-file.
"""

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

from mainspring.kernel.trust import CA_VARIABLE, INSECURE_VARIABLE

CaOption = Annotated[
    Path | None,
    typer.Option(
        "--ca",
        metavar="FILE",
        envvar=CA_VARIABLE,
        help="Trust the authorities in this file (PEM) instead of those of the system.",
        rich_help_panel="Connection",
        show_default=False,
    ),
]
InsecureFlag = Annotated[
    bool,
    typer.Option(
        "--insecure-http",
        envvar=INSECURE_VARIABLE,
        help="Send the token without TLS to another machine.",
        rich_help_panel="Connection",
        show_default=False,
    ),
]
DatabaseUrlFileOption = Annotated[
    Path | None,
    typer.Option(
        "--database-url-file",
        metavar="FILE",
        envvar="MAINSPRING_DATABASE_URL_FILE",
        help="File that contains the URL of the database, with its password.",
        show_default=False,
    ),
]

_ADDED: dict[str, tuple[str, Any, Any]] = {
    "ca": ("token_file", CaOption, None),
    "insecure_http": ("token_file", InsecureFlag, False),
    "database_url_file": ("database_url", DatabaseUrlFileOption, None),
}


def with_shared_options(command: Callable[..., None]) -> Callable[..., None]:
    """The command with the options that belong to the parameters that it has."""
    signature = inspect.signature(command, eval_str=True)
    parameters = dict(signature.parameters)
    added = [name for name, (beside, _, _) in _ADDED.items() if beside in parameters]
    if not added:
        return command
    for name in added:
        _, annotation, default = _ADDED[name]
        keyword = inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
        parameters[name] = keyword
    context = inspect.Parameter("context", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)

    @wraps(command)
    def with_options(*, context: typer.Context, **values: Any) -> None:
        given = {name: values.pop(name) for name in added}
        if "database_url" in values:
            values["database_url"] = _database_url(context, values["database_url"], given["database_url_file"])
        with _as_environment(given):
            command(**values)

    keywords = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in parameters.values()]
    shown: Any = with_options
    shown.__signature__ = signature.replace(parameters=[*keywords, context])
    shown.__annotations__ = {each.name: each.annotation for each in (*keywords, context)}
    del shown.__wrapped__
    return with_options


@contextmanager
def _as_environment(given: dict[str, Any]) -> Iterator[None]:
    """Set the variables while the command runs."""
    wanted = {}
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


def _database_url(context: typer.Context, url: str | None, file: Path | None) -> str | None:
    """The URL from the option or the file. What the command line says counts more than the environment."""
    from mainspring.domain.errors import InvalidInput

    url_typed, file_typed = (_on_command_line(context, name) for name in ("database_url", "database_url_file"))
    if url_typed and url and urlsplit(url).password:
        sys.stderr.write(
            "warning: `ps` shows the password in --database-url to all users of this machine; use --database-url-file, "
            "MAINSPRING_DATABASE_URL or PGPASSFILE\n"
        )
    if file is None or (url and not file_typed):
        return url
    if url_typed and url:
        raise InvalidInput("the database is given twice", field="database_url_file", hint="leave one of the two out")
    try:
        text = file.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(f"cannot read the file {file}: {error}", field="database_url_file") from None
    if not text:
        raise InvalidInput(f"the file {file} is empty", field="database_url_file")
    return text


def _on_command_line(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"
