"""A kind of task of another package, as pip would install it: a package, and its metadata with the entry point."""

from __future__ import annotations

from pathlib import Path

FILES = {
    "greeting/__init__.py": """
from mainspring.kinds.registry import TaskKind

KIND = TaskKind("greet", folder=__name__)
""",
    "greeting/call.py": """
import msgspec


class Greeting(msgspec.Struct, frozen=True, omit_defaults=True):
    name: str
    loud: bool = False


class GreetingIn(Greeting, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    pass


CALL, CALL_IN = Greeting, GreetingIn


def in_words(call):
    return f"hello to {call.name}"
""",
    "greeting/checks.py": """
from greeting import KIND
from greeting.call import Greeting
from mainspring.domain.errors import InvalidInput
from mainspring.domain.intake.kind_checks import CallChecks


class GreetingChecks(CallChecks):
    noun = "a name"
    example = '{"name": "Ada"}'

    def check(self, given, field):
        if not given.name:
            raise InvalidInput("the name is empty", field=f"{field}.name", hint="say whom to greet")
        return Greeting(given.name, given.loud)


CHECKS = GreetingChecks(KIND)
""",
    "greeting/options.py": """
from mainspring.kinds.registry import KindOptions, Option


def call(given):
    return None if given["greet"] is None else {"name": given["greet"], "loud": given["voice"] == "loud"}


OPTIONS = KindOptions(
    of_a_job=(
        Option("greet", "--greet", "NAME", "Greet somebody.", panel="Greeting"),
        Option("voice", "--voice", "V", "loud, or nothing.", panel="Greeting"),
    ),
    call=call,
    of_a_worker=(Option("greeting", "--greeting", "WORD", "The word before the name."),),
)
""",
    "greeting/executor.py": """
import msgspec

from greeting.checks import CHECKS
from mainspring.worker.execution.attempt import AttemptEnding


class GreetingExecutor:
    killable = isolates = True
    has_processes = False

    def __init__(self, word, open_log):
        self._word, self._open_log = word, open_log

    def offers(self):
        return {"greet": self._greet}

    def kill_all(self):
        pass

    async def _greet(self, attempt):
        order = attempt.order
        payload = bytes(order.payload).decode()
        call = order.setup.greet if payload == "null" else CHECKS.call_in(payload)
        words = f"{self._word} {call.name}"
        self._open_log(attempt).write(words.encode())
        await attempt.log.finish()
        return AttemptEnding(result=msgspec.Raw(msgspec.json.encode(words.upper() if call.loud else words)))


def build(setting):
    return GreetingExecutor(setting.options.get("greeting") or "hello", setting.open_log)
""",
    "mainspring_greeting-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: mainspring-greeting\nVersion: 1.0\n",
    "mainspring_greeting-1.0.dist-info/entry_points.txt": "[mainspring.task_kinds]\ngreet = greeting:KIND\n",
}


def install(folder: Path, files: dict[str, str] | None = None) -> Path:
    for name, text in (files or FILES).items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder
