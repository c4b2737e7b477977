"""The command line, put together. Each verb is a module with `command` and `EXAMPLES`."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Annotated

import typer

from mainspring.cli import (
    bench,
    cancel,
    dead_letter,
    dead_letters,
    discard,
    drain,
    job,
    jobs,
    logs,
    migrate,
    pause,
    queues,
    replay,
    resume,
    retry,
    run,
    run_now,
    runs,
    scheduler,
    server,
    submit,
    tasks,
    timeline,
    up,
    why,
    worker,
    workers,
)
from mainspring.cli.exit_codes import BAD_INPUT, FAILURE, INTERRUPTED

_PANELS: dict[str, tuple[ModuleType, ...]] = {
    "Start": (up, server, scheduler, worker, migrate),
    "Submit and look": (submit, jobs, job, runs, run, logs, why, timeline),
    "Steer": (run_now, pause, resume, cancel, retry),
    "Dead letters": (dead_letters, dead_letter, replay, discard),
    "Operate": (workers, tasks, queues, drain),
}
# Typer has moved Click inside itself; its public BadParameter is a usage error in every version.
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
    """Mainspring runs jobs on time, one run per fire time.

    Start it with `mainspring up`, then `mainspring submit --command 'echo hello' --wait`.
    """


def build() -> typer.Typer:
    """The application with all its verbs."""
    app = typer.Typer(
        name="mainspring", rich_markup_mode="rich", pretty_exceptions_enable=False, context_settings=_SETTINGS
    )
    app.callback()(_root)
    for panel, modules in _PANELS.items():
        for module in modules:
            verb = module.__name__.rpartition(".")[2].replace("_", "-")
            app.command(verb, epilog=_epilog(module.EXAMPLES), rich_help_panel=panel)(module.command)
    app.add_typer(bench.app, name="bench", help="Measure this machine.", rich_help_panel="Operate")
    return app


_SETTINGS = {"help_option_names": ["-h", "--help"]}


def _epilog(examples: Sequence[str]) -> str:
    title = "Example" if len(examples) == 1 else "Examples"
    return f"{title}:\n\n" + "\n\n".join("  " + example.replace("[", "\\[") for example in examples)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; gives the exit code. Nothing that goes wrong shows a traceback."""
    args = list(sys.argv[1:] if argv is None else argv) or ["--help"]
    try:
        code = build()(args=args, prog_name="mainspring", standalone_mode=False)
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except (KeyboardInterrupt, typer.Abort):
        return INTERRUPTED
    except BrokenPipeError:
        # The reader (head, less) has seen enough. Python would complain once more when it closes stdout.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILURE
    except _UsageError as error:
        return _misused(error)
    except Exception as error:  # noqa: BLE001 - the last place where an error can still be said in a line
        return _failed(error, as_json="--json" in args)


def _misused(error: Exception) -> int:
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "mainspring"
    message = error.format_message() if hasattr(error, "format_message") else str(error)
    sys.stderr.write(f"error: {message}\nhint: see {path} --help\n")
    return BAD_INPUT


def _failed(error: Exception, *, as_json: bool) -> int:
    from mainspring.cli.failures import report
    from mainspring.domain.errors import MainspringError

    if os.environ.get("MAINSPRING_DEBUG"):
        raise error
    if not isinstance(error, MainspringError):
        error = MainspringError(
            f"{type(error).__name__}: {error}", code="unexpected", hint="MAINSPRING_DEBUG=1 shows where"
        )
    return report(error, as_json=as_json)
