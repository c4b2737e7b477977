"""Builds the command line: the commands and nouns of cli/commands.py."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any

import typer

from mainspring.cli.commands import APART, BENCH, COMMANDS, NOUNS, OLD_NAMES, load_command, load_noun, load_verb
from mainspring.cli.exit_codes import BAD_INPUT, FAILURE, INTERRUPTED
from mainspring.cli.extras import in_words
from mainspring.cli.groups import HELP, Root, UsageError, noun_group
from mainspring.cli.misuse import in_other_words, own_options
from mainspring.cli.noun import Noun, NounVerb
from mainspring.cli.prepare import place_in_file, prepared
from mainspring.kernel.terminal import visible

_COMPLETE = "_MAINSPRING_COMPLETE"  # set by the completion of a shell


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


def build(only: tuple[str, ...] = ()) -> typer.Typer:
    """The application with all commands. only: with this command, or with this noun and the verb that the second word
    names."""
    app = typer.Typer(
        name="mainspring",
        cls=Root,
        rich_markup_mode="rich",
        pretty_exceptions_enable=False,
        context_settings=_SETTINGS,
    )
    app.callback()(_root)
    wanted, word = (*only, None, None)[:2]
    for name in COMMANDS:
        if wanted in (None, name):
            _add(app, name, load_command(name))
    for name in OLD_NAMES:
        if wanted in (None, name):
            _add(app, name, load_command(name), hidden=True)
    for name in NOUNS:
        if wanted in (None, name):
            _add_noun(app, name, word)
    if wanted in (None, BENCH):
        from mainspring.cli import bench

        app.add_typer(bench.app, name=BENCH, help="Measure the performance of this machine.")
    return app


def _add_noun(app: typer.Typer, name: str, word: str | None) -> None:
    """word: what follows the noun. Only the verb that it means is added. None, or a word for help: all of them."""
    if word is not None and (name, word) in APART:
        noun = Noun(name, "", word, {word: load_verb(name, word)})
    else:
        noun = load_noun(name)
    below = typer.Typer(cls=noun_group(noun), rich_markup_mode="rich")
    meant = None if word is None or word in HELP else word if word in noun.verbs else noun.default
    for verb in [noun.verbs[meant]] if meant is not None else noun.verbs.values():
        _add(below, verb.name, verb, hidden=not verb.listed)
    app.add_typer(below, name=noun.name, help=noun.help)


def _add(app: typer.Typer, name: str, verb: NounVerb, *, hidden: bool = False) -> None:
    app.command(name, epilog=_epilog(verb.examples), hidden=hidden)(prepared(verb.function))


def _chosen(args: Sequence[str]) -> tuple[str, ...]:
    """The command or the noun in the first argument, and the word after it. An option of `mainspring` itself needs no
    command. Nothing for an unknown word."""
    if _COMPLETE in os.environ:  # the shell passes the words in its own variables
        typed = (os.environ.get("COMP_WORDS") or os.environ.get("_TYPER_COMPLETE_ARGS") or "").split()
        return (typed[1],) if typed[1:] and typed[1] in _KNOWN else ()
    if args[0] not in _KNOWN:
        return (args[0],) if args[0].startswith("-") else ()
    word = args[1] if len(args) > 1 else None
    for noun, verb in APART:
        if args[0] == noun and (not word or (word[0] == "-" and word not in HELP)):
            return noun, verb
    return args[0], word or ""


_KNOWN = {BENCH, *COMMANDS, *NOUNS, *OLD_NAMES}
# What an option is called elsewhere, and in requests.
_OTHER_WORDS = {
    "--tz": "--timezone", "--delay": "--in", "--cmd": "--command", "--max-retries": "--retries", "--id": "--job-id",
    "--labels": "--label", "--tag": "--label", "--schedule": "--cron", "--run-at": "--at", "--args": "--payload",
    "--value": "--file",
}  # fmt: skip
_SETTINGS = {"help_option_names": ["-h", "--help"]}


def _epilog(examples: Sequence[str]) -> str:
    title = "Example" if len(examples) == 1 else "Examples"
    return f"{title}:\n\n" + "\n\n".join("  " + example.replace("[", "\\[") for example in examples)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code. Errors are printed without a traceback."""
    args = list(sys.argv[1:] if argv is None else argv) or ["--help"]
    _prepare_output()
    try:
        code = build(_chosen(args))(args=args, prog_name="mainspring", standalone_mode=False)
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except (KeyboardInterrupt, typer.Abort):
        return INTERRUPTED
    except BrokenPipeError:
        # The reader (head, less) has closed the pipe. Without this, Python reports it again when it closes stdout.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILURE
    except UsageError as error:
        return _misused(error, args)
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


def _misused(error: Exception, args: Sequence[str]) -> int:
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else _path(args)
    message = error.format_message() if hasattr(error, "format_message") else str(error)
    if not message:  # a command group without a command: its help was shown
        return 0
    place = None if context is None else place_in_file(context, getattr(error, "param", None))
    if place is not None:  # the user typed no option
        message = f"{place}: {getattr(error, 'message', message)}"
    suggestion = getattr(error, "suggestion", None) or getattr(error, "verbs", None)
    if place is None:
        message, instead = in_other_words(error, message, context)
        suggestion = suggestion or instead
    if hasattr(error, "possibilities"):  # no such option
        name = str(getattr(error, "option_name", ""))
        message = f"there is no option {name}"
        suggestion = _other_option(name, error.possibilities or (), path, args)
        other = _OTHER_WORDS.get(name)
        if (
            other is not None
            and context is not None
            and other in {one for p in context.command.params for one in p.opts}
        ):
            suggestion = f"did you mean {other}?"
        elif context is not None and suggestion is None:
            suggestion = _without_option(name, context.command.params) or own_options(context.command.params)
    elif args[0] in OLD_NAMES and len(args) > 1 and args[1] in ("list", "show"):  # `jobs list`
        suggestion = f"did you mean `mainspring {OLD_NAMES[args[0]].partition(' ')[0]} {args[1]}`?"
    hint = f"{suggestion} see" if suggestion else "see"
    sys.stderr.write(visible(f"error: {message}\nhint: {hint} {path.strip()} --help\n"))
    return BAD_INPUT


def _path(args: Sequence[str]) -> str:
    """The command of these arguments, for an error that does not know it."""
    words = [word for word in _chosen(args) if word and not word.startswith("-")]
    if len(words) == 2 and (words[0] not in NOUNS or words[1] not in load_noun(words[0]).verbs):
        words.pop()
    return " ".join(("mainspring", *words))


def _other_option(name: str, possible: Sequence[str], path: str, args: Sequence[str]) -> str | None:
    """The option that was meant, or where it stands. The list of `possible` ones has many that are hardly alike."""
    if path == "mainspring" and args[0] == name:
        return "options stand after the command;"
    near = get_close_matches(name, possible, n=1, cutoff=0.75)
    return f"did you mean {near[0]}?" if near else None


def _without_option(name: str, params: Sequence[Any]) -> str | None:
    """Where a word stands that was given as an option, such as --task of `submit`."""
    word = name.strip("-").replace("-", "_")
    found = any(each.param_type_name == "argument" and each.name == word for each in params)
    return f"{word.upper()} stands without {name}, as a word of its own;" if found else None


def _failed(error: Exception, args: Sequence[str]) -> int:
    from mainspring.cli.error_report import report
    from mainspring.domain.errors import MainspringError

    if os.environ.get("MAINSPRING_DEBUG"):
        raise error
    error = in_words(error)
    if not isinstance(error, MainspringError):
        error = MainspringError(
            f"{type(error).__name__}: {error}", code="unexpected", hint="set MAINSPRING_DEBUG=1 to see the traceback"
        )
    return report(error, as_json="--json" in args, typed=args)
