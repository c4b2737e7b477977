"""`mainspring apply`"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from mainspring.cli.connect import JsonFlag, Server
from mainspring.cli.exit_codes import BAD_INPUT, FAILURE
from mainspring.cli.job_files.file_reader import JobFiles, read_job_files
from mainspring.cli.job_files.plan_output import differs, plan_lines
from mainspring.cli.job_files.problems import in_files, problem_lines
from mainspring.cli.job_files.secret_values import with_secret_values
from mainspring.cli.screen import say, show_json, show_line

if TYPE_CHECKING:
    from mainspring.sdk.client.client import Client
    from mainspring.wire.files import FilesAnswer

EXAMPLES = (
    "mainspring apply jobs.yaml --plan",
    "mainspring apply jobs/ --env production",
    "mainspring apply jobs.toml --set region=eu --prune",
)
_DIFFERS = BAD_INPUT  # as other tools that plan do; errors of a plan end with 1


def command(
    server: Server,
    files: Annotated[list[str], typer.Argument(metavar="FILE...", help="YAML or TOML files, or folders; - is stdin.")],
    plan: Annotated[
        bool,
        typer.Option("--plan", help="Only say what would change. Exit with 2 if something would, with 1 if not valid."),
    ] = False,
    prune: Annotated[
        bool, typer.Option("--prune", help="Remove what the owner of the files had and they no longer have.")
    ] = False,
    take_over: Annotated[bool, typer.Option("--take-over", help="Also change what other files own.")] = False,
    environment: Annotated[
        str | None, typer.Option("--env", metavar="NAME", help="The environment whose variables count.")
    ] = None,
    given: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="Value of a variable; can be repeated.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask before something is removed.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Make jobs, workflows, calendars, limits and the rest as files say: all of it or nothing. The same files again
    change nothing. A field that a file does not have gets its default."""
    from mainspring.domain.errors import InvalidInput

    try:
        found = with_secret_values(read_job_files(files, environment=environment, given=_pairs(given or [])))
        with server.connect() as client:
            answer = _answer(client, found, plan=plan, prune=prune, take_over=take_over, yes=yes)
    except InvalidInput as error:
        if not plan:
            raise
        from mainspring.cli.error_report import report

        report(error, as_json=as_json)
        raise typer.Exit(FAILURE) from None
    if as_json:
        show_json(answer)
    else:
        _show(answer)
    if plan and differs(answer):
        raise typer.Exit(_DIFFERS)


def _answer(client: Client, files: JobFiles, *, plan: bool, prune: bool, take_over: bool, yes: bool) -> FilesAnswer:
    from mainspring.domain.errors import InvalidBatch

    objects = [entry.as_object() for entry in files.entries]
    try:
        expected: str | None = None
        if plan or (prune and not yes):
            planned = client.plan_files(files.owner, objects, prune=prune, take_over=take_over)
            if plan:
                return planned
            expected = _confirmed(planned)
        return client.apply_files(files.owner, objects, prune=prune, take_over=take_over, expected=expected)
    except InvalidBatch as error:
        for line in problem_lines(error, files):
            say(line)
        raise in_files(error, files) from None


def _confirmed(planned: FilesAnswer) -> str:
    """Ask, if something would be removed."""
    from mainspring.domain.errors import InvalidInput

    removed = sum(change.action == "remove" for change in planned.changes)
    if removed:
        for line in plan_lines(planned):
            say(line)
        if not sys.stdin.isatty():
            raise InvalidInput("nobody can be asked", hint="look at --plan --prune, and give --yes to remove it")
        if not typer.confirm(f"remove {removed} and apply the rest?", err=True):
            say("nothing was changed")
            raise typer.Exit(1)
    return planned.digest


def _show(answer: FilesAnswer) -> None:
    for line in plan_lines(answer):
        show_line(line)
    for warning in answer.warnings:
        say(f"warning: {warning}")


def _pairs(given: list[str]) -> dict[str, str]:
    from mainspring.domain.errors import InvalidInput

    found: dict[str, str] = {}
    for one in given:
        name, sign, value = one.partition("=")
        if not sign or not name:
            raise InvalidInput(f"{one!r} has no value", field="set", expected="NAME=VALUE")
        found[name] = value
    return found
