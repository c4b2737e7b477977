"""Builds the command line. Each command is a module of this package with `command` and `EXAMPLES`."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Annotated

import typer

from mainspring.cli.exit_codes import BAD_INPUT, FAILURE, INTERRUPTED
from mainspring.cli.shared_options import place_in_file, with_shared_options
from mainspring.kernel.terminal import visible

# Only the module of the called command is imported. Importing all of them costs 35 ms, which every start of a server
# or a worker would pay.
_PANELS: dict[str, tuple[str, ...]] = {
    "Start": ("up", "server", "scheduler", "worker", "migrate"),
    "Submit and look": ("submit", "jobs", "job", "runs", "run", "logs", "why", "timeline", "preview"),
    "Steer": ("edit", "run-now", "pause", "resume", "cancel", "retry"),
    "Act on many": ("act", "operations", "operation", "operation-cancel"),
    "Backfill": (
        "backfill",
        "backfills",
        "backfill-status",
        "backfill-set",
        "backfill-pause",
        "backfill-resume",
        "backfill-cancel",
    ),
    "Dead letters": ("dead-letters", "dead-letter", "replay", "discard"),
    "Operate": (
        "status",
        "overview",
        "failures",
        "top",
        "upcoming",
        "heatmap",
        "workers",
        "tasks",
        "queues",
        "queue",
        "limits",
        "limit",
        "calendars",
        "calendar",
        "calendar-set",
        "calendar-delete",
        "breakers",
        "breaker-reset",
        "drain",
        "completion",
    ),
    "Access": ("open", "tenants", "tenant-add", "tokens", "token-add", "token-revoke", "sessions", "session-end"),
}
_GROUPS: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "workflow": (
        "Submit and look",
        "Workflows: jobs that depend on each other, and their runs.",
        (
            *("create", "apply", "check", "list", "show", "run", "runs", "steps", "watch"),
            *("cancel", "rerun", "pause", "resume", "delete"),
        ),
    )
}
"""Commands with commands of their own: `mainspring workflow run` is the module workflow_run."""
_BENCH = "bench"
_COMPLETE = "_MAINSPRING_COMPLETE"  # set by the completion of a shell
# Newer versions of Typer contain a copy of Click. The base class of Typer's BadParameter is UsageError in all of them.
_UsageError: type[Exception] = typer.BadParameter.__mro__[1]


def _version(wanted: bool) -> None:
    if wanted:
        from mainspring import __version__

        typer.echo(f"mainspring {__version__}")
        raise typer.Exit


def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.", show_default=False)
    ] = False,
) -> None:
    """Mainspring runs jobs on time, with one run per fire time.

    Start it with `mainspring up`, then `mainspring submit --command 'echo hello' --wait`.
    """


def build(only: str | None = None) -> typer.Typer:
    """The application with all commands, or with the command `only`."""
    app = typer.Typer(
        name="mainspring", rich_markup_mode="rich", pretty_exceptions_enable=False, context_settings=_SETTINGS
    )
    app.callback()(_root)
    for panel, verbs in _PANELS.items():
        for verb in verbs:
            if only in (None, verb):
                module = load(verb)
                app.command(verb, epilog=_epilog(module.EXAMPLES), rich_help_panel=panel)(
                    with_shared_options(module.command)
                )
    for group, (panel, words, verbs) in _GROUPS.items():
        if only in (None, group):
            below = typer.Typer(no_args_is_help=True, rich_markup_mode="rich")
            for verb in verbs:
                module = load(f"{group}-{verb}")
                below.command(verb, epilog=_epilog(module.EXAMPLES))(with_shared_options(module.command))
            app.add_typer(below, name=group, help=words, rich_help_panel=panel)
    if only in (None, _BENCH):
        app.add_typer(
            load(_BENCH).app, name=_BENCH, help="Measure the performance of this machine.", rich_help_panel="Operate"
        )
    return app


def load(verb: str) -> ModuleType:
    return import_module(f"mainspring.cli.{verb.replace('-', '_')}")


def _verb_of(args: Sequence[str]) -> str | None:
    """The command in the first argument. None for --help and for unknown commands: these need all commands."""
    if _COMPLETE in os.environ:  # the shell passes the words in its own variables
        typed = (os.environ.get("COMP_WORDS") or os.environ.get("_TYPER_COMPLETE_ARGS") or "").split()
        args = typed[1:2] or args
    known = {_BENCH, *_GROUPS}.union(*_PANELS.values())
    return args[0] if args[0] in known else None


_SETTINGS = {"help_option_names": ["-h", "--help"]}


def _epilog(examples: Sequence[str]) -> str:
    title = "Example" if len(examples) == 1 else "Examples"
    return f"{title}:\n\n" + "\n\n".join("  " + example.replace("[", "\\[") for example in examples)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code. Errors are printed without a traceback."""
    args = list(sys.argv[1:] if argv is None else argv) or ["--help"]
    _prepare_output()
    try:
        code = build(_verb_of(args))(args=args, prog_name="mainspring", standalone_mode=False)
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except (KeyboardInterrupt, typer.Abort):
        return INTERRUPTED
    except BrokenPipeError:
        # The reader (head, less) has closed the pipe. Without this, Python reports it again when it closes stdout.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILURE
    except _UsageError as error:
        return _misused(error)
    except Exception as error:  # noqa: BLE001 - the outermost handler prints the error as one line
        return _failed(error, args)


def _prepare_output() -> None:
    """Let no character in a job's name or output fail the output."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:  # the caller closed it (>&-)
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115 - open until the process ends
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # for a terminal that does not use UTF-8


def _misused(error: Exception) -> int:
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "mainspring"
    message = error.format_message() if hasattr(error, "format_message") else str(error)
    if not message:  # a command group without a command: its help was shown
        return 0
    place = None if context is None else place_in_file(context, getattr(error, "param", None))
    if place is not None:  # the user typed no option
        message = f"{place}: {getattr(error, 'message', message)}"
    sys.stderr.write(visible(f"error: {message}\nhint: see {path} --help\n"))
    return BAD_INPUT


def _failed(error: Exception, args: Sequence[str]) -> int:
    from mainspring.cli.error_report import report
    from mainspring.domain.errors import MainspringError

    if os.environ.get("MAINSPRING_DEBUG"):
        raise error
    if not isinstance(error, MainspringError):
        error = MainspringError(
            f"{type(error).__name__}: {error}", code="unexpected", hint="set MAINSPRING_DEBUG=1 to see the traceback"
        )
    return report(error, as_json="--json" in args, typed=args)
