"""Groups of commands: `mainspring` itself and its nouns. How they find a verb, what they complete, and their help.

The help of a group is plain text that fits a screen. Typer draws the help of a single command.
"""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from typing import Any

import typer
from typer.core import TyperGroup

from mainspring.cli.commands import BENCH, COMMANDS, NOUNS, OLD_NAMES, TOPICS, load_command, load_noun
from mainspring.cli.noun import Noun, first_sentence

# Newer versions of Typer contain a copy of Click. The base class of Typer's BadParameter is UsageError in all of them.
UsageError: type[Exception] = typer.BadParameter.__mro__[1]
HELP = ("-h", "--help")
_WIDTH = 80
_TOPIC, _NAME = 9, 12
_MOST_SUGGESTIONS = 3
_MAKE, _END = ("add", "set", "create", "submit", "apply"), ("delete", "remove", "revoke", "cancel", "discard")
_OTHER_WORDS = {  # what other command lines call it
    **dict.fromkeys(("add", "create", "new", "put", "set", "update"), (*_MAKE, "edit")),
    **dict.fromkeys(("delete", "remove", "rm", "del", "unset"), _END),
    **dict.fromkeys(("ls", "all"), ("list",)),
    **dict.fromkeys(("get", "describe", "info", "view"), ("show",)),
    **dict.fromkeys(("stop", "kill"), ("cancel", "drain", "pause")),
}

_OF_RUNS, _WITH_RUNS = ("logs", "retry", "timeline", "why"), ("dead-letter", "job", "workflow")  # `run why JOB`


class CommandGroup(TyperGroup):
    """A group with a plain help: one line for each command. It is also shown if no command is named."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if not args and not ctx.resilient_parsing:
            typer.echo(ctx.get_help())
            ctx.exit()
        return super().parse_args(ctx, args)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        names = [name for name in self.list_commands(ctx) if not self.commands[name].hidden]
        rows = [(name, first_sentence(self.commands[name].help or "", _room(names))) for name in names]
        write_help(formatter, ctx.command_path, self.help or "", rows, ())

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args[0] not in self.commands and not ctx.resilient_parsing:
            path = ctx.command_path.partition(" ")[2]
            raise unknown_command(ctx, args[0], {name: f"{path} {name}" for name in self.list_commands(ctx)})
        return super().resolve_command(ctx, args)


class Root(TyperGroup):
    """`mainspring`. Its help names every command that is not an earlier name of one, by what people want to do."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        formatter.write("Usage: mainspring COMMAND [ARGS]...   (COMMAND --help says more)\n\n")
        formatter.write(textwrap.fill(" ".join((self.help or "").split()), _WIDTH) + "\n\n")
        for topic, rows in TOPICS.items():
            for place, row in enumerate(rows):
                title = topic if place == 0 else ""
                if len(row) > 1:
                    formatter.write(f"{title:{_TOPIC}} {', '.join(row)}\n")
                else:
                    formatter.write(_one_line(f"{title:{_TOPIC}} {row[0]:{_NAME}} ", row[0]))

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args[0] not in self.commands and not ctx.resilient_parsing:
            known = {name: name for name in (*COMMANDS, *NOUNS, BENCH)} | OLD_NAMES
            raise unknown_command(ctx, args[0], known)
        return super().resolve_command(ctx, args)


def noun_group(noun: Noun) -> type[TyperGroup]:
    """The group of a noun. Typer makes it from a class."""

    class NounGroup(CommandGroup):
        def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
            """Typer calls this before it looks for the verb. In a completion, the word that is being typed is not
            among `args`."""
            alone = not args and not ctx.resilient_parsing
            if noun.default and (alone or (args and args[0] not in HELP and args[0] not in _names(noun))):
                ctx.meta[_UNKNOWN] = args[0] if args and not args[0].startswith("-") else None
                args = [noun.default, *args]
            return super().parse_args(ctx, args)

        def resolve_command(self, ctx: Any, args: list[str]) -> Any:
            if args[0] not in noun.verbs and not ctx.resilient_parsing:
                raise self.unknown(ctx, args[0])
            name, command, rest = super().resolve_command(ctx, args)
            return (None if command is not None and command.hidden else name), command, rest

        def invoke(self, ctx: Any) -> Any:
            """An error of the default verb says which verb may have been meant."""
            word = ctx.meta.get(_UNKNOWN)
            try:
                return super().invoke(ctx)
            except Exception as error:
                if word is None:
                    raise
                unknown = self.unknown(ctx, word)
                if type(error) is UsageError:  # more words than the default verb takes
                    raise unknown from None
                _suggest(error, unknown)
                raise

        def unknown(self, ctx: Any, word: str) -> Exception:
            return unknown_command(ctx, word, {name: f"{noun.name} {name}" for name in _names(noun)})

        def shell_complete(self, ctx: Any, incomplete: str) -> list[Any]:
            """Verbs, and what the default verb offers in their place."""
            found = super().shell_complete(ctx, incomplete)
            command = self.commands.get(noun.default or "")
            if command is None:
                return found
            inside = command.make_context(noun.default, [], parent=ctx, resilient_parsing=True)
            if incomplete.startswith("-"):
                known = {item.value for item in found}
                return found + [item for item in command.shell_complete(inside, incomplete) if item.value not in known]
            arguments = [each for each in command.params if each.param_type_name == "argument"]
            return found + (arguments[0].shell_complete(inside, incomplete) if arguments else [])

        def format_help(self, ctx: Any, formatter: Any) -> None:
            rows = [(verb.name, verb.summary(_room(_names(noun)))) for verb in noun.listed]
            write_help(formatter, f"mainspring {noun.name}", noun.help, rows, _notes(noun))

    return NounGroup


_UNKNOWN = "mainspring.unknown_verb"


def unknown_command(ctx: Any, word: str, known: dict[str, str]) -> Exception:
    """The error for a word that is not a command. known: names that are close if they were meant, and what to type."""
    error = UsageError(f"{ctx.command_path} has no command {word!r}", ctx=ctx)  # type: ignore[call-arg]
    close = list(dict.fromkeys(known[name] for name in get_close_matches(word, known, _MOST_SUGGESTIONS)))
    if not close:
        close = [known[name] for name in _OTHER_WORDS.get(word, ()) if name in known][:1]
    if not close and word in _OF_RUNS and ctx.info_name in _WITH_RUNS:
        close = [f"run {word}"]
    if not close and word in COMMANDS:
        close = [word]
    if ctx.parent is not None:  # a noun, whose verbs are few
        error.verbs = f"it has {', '.join(known)};"  # type: ignore[attr-defined]
    if close:
        root = ctx.find_root().command_path
        error.suggestion = _did_you_mean(f"{root} {name}" for name in close)  # type: ignore[attr-defined]
    return error


def _suggest(error: Exception, unknown: Exception) -> None:
    """Give an error of the default verb the suggestion of the other one."""
    words = getattr(unknown, "suggestion", None)
    if words is None:
        return
    if isinstance(error, UsageError):
        error.suggestion = words  # type: ignore[attr-defined]
    elif getattr(error, "code", None) in ("not_found", "no_run_or_job"):
        hint = getattr(error, "hint", None)
        error.hint = words if hint is None else f"{words} {hint}"  # type: ignore[attr-defined]


def _did_you_mean(commands: Iterable[str]) -> str:
    return f"did you mean {' or '.join(f'`{command}`' for command in commands)}?"


def _names(noun: Noun) -> list[str]:
    return [verb.name for verb in noun.listed]


def _notes(noun: Noun) -> list[str]:
    if noun.default is None:
        return []
    verb = noun.verbs[noun.default]
    if not verb.listed:
        verb = noun.verbs["show"]
    parameters = inspect.signature(verb.function, eval_str=True).parameters.values()
    arguments = [each for part in parameters for each in getattr(part.annotation, "__metadata__", ())]
    of = next((each.metavar for each in arguments if type(each).__name__ == "ArgumentInfo"), None)
    if of is None:
        return [f"Without a verb: {verb.name}."]
    article = "An" if of[0] in "AEIOU" else "A"
    return [f"Without a verb: {verb.name}. {article} {of} with the name of a verb needs `{verb.name}`."]


def write_help(formatter: Any, path: str, text: str, rows: Sequence[tuple[str, str]], notes: Sequence[str]) -> None:
    usage = f"Usage: {path} COMMAND [ARGS]...   (COMMAND --help says more)"
    formatter.write(f"{usage}\n\n{textwrap.fill(text, _WIDTH)}\n\n")
    width = _WIDTH - _room([name for name, _ in rows])
    for name, words in rows:
        formatter.write(_filled(f"  {name}".ljust(width), words))
    for note in notes:
        formatter.write("\n" + textwrap.fill(note, _WIDTH) + "\n")


def _room(names: Sequence[str]) -> int:
    """The columns that names of this length leave for words."""
    return _WIDTH - max(map(len, names)) - 4


def _filled(before: str, words: str) -> str:
    return textwrap.fill(words, _WIDTH, initial_indent=before, subsequent_indent=" " * len(before)) + "\n"


def _one_line(before: str, name: str) -> str:
    """The verbs of a noun, or what a command does. What does not fit is left out."""
    room = _WIDTH - len(before)
    words = ", ".join(_names(load_noun(name))) if name in NOUNS else load_command(name).summary(room)
    if len(words) > room:
        words = words[: room - 3].rpartition(" ")[0].rstrip(",") + " ..."
    return f"{before}{words}\n"
