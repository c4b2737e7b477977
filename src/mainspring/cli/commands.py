"""Which commands there are, and where they are. A module is imported when one of its commands is called.

Importing all of them costs 35 ms, which every start of a server or a worker would pay.
"""

from __future__ import annotations

from importlib import import_module
from keyword import iskeyword

from mainspring.cli.noun import Noun, NounVerb

BENCH = "bench"
# What people want to do, and the nouns and commands for it. Those in one row share a line of the help.
TOPICS: dict[str, tuple[tuple[str, ...], ...]] = {
    "Start": (("up",), ("server", "scheduler", "connect", "migrate", "backup", "restore", "upgrade-database")),
    "Submit": (("submit", "emit"), ("schedule", "apply", "export", "import", "schema")),
    "Steer": (("job",), ("run",), ("workflow", "approval"), ("backfill",), ("dead-letter",), ("act", "operation")),
    "Watch": (("event", "source", "status", "overview", "failures", "missed", "top", "logs", "doctor"),),
    "Operate": (
        ("worker",),
        ("queue",),
        ("limit",),
        ("calendar",),
        ("breaker", "task", "channel", "rule", "notification", "sink", "view"),
    ),
    "Access": (("tenant",), ("user", "token", "secret"), ("session", "open", "audit")),
    "Tools": (("completion", BENCH),),
}
NOUNS = (
    *("job", "run", "workflow", "approval", "backfill", "dead-letter", "operation", "schedule", "event", "source"),
    *("worker", "task", "queue", "limit", "breaker", "calendar", "tenant", "user", "token", "secret", "session"),
    *("audit", "channel", "rule", "notification", "sink", "view", "import", "backup"),
)
COMMANDS = tuple(
    name for rows in TOPICS.values() for row in rows for name in row if name not in NOUNS and name != BENCH
)
# Verbs with a module of their own, which is loaded without the other verbs: workers start often.
APART = {("worker", "start"): "worker"}
# Earlier names of commands. They work as before, and no help lists them.
OLD_NAMES = {
    "jobs": "job list",
    "edit": "job edit",
    "run-now": "job run",
    "pause": "job pause",
    "resume": "job resume",
    "cancel": "job cancel",
    "runs": "run list",
    "why": "run why",
    "timeline": "run timeline",
    "retry": "run retry",
    "operations": "operation list",
    "operation-cancel": "operation cancel",
    "backfills": "backfill list",
    "backfill-status": "backfill show",
    "backfill-set": "backfill set",
    "backfill-pause": "backfill pause",
    "backfill-resume": "backfill resume",
    "backfill-cancel": "backfill cancel",
    "dead-letters": "dead-letter list",
    "replay": "dead-letter replay",
    "discard": "dead-letter discard",
    "preview": "schedule preview",
    "upcoming": "schedule upcoming",
    "heatmap": "schedule heatmap",
    "workers": "worker list",
    "drain": "worker drain",
    "tasks": "task list",
    "queues": "queue list",
    "limits": "limit list",
    "breakers": "breaker list",
    "breaker-reset": "breaker reset",
    "calendars": "calendar list",
    "calendar-set": "calendar set",
    "calendar-delete": "calendar delete",
    "tenants": "tenant list",
    "tenant-add": "tenant add",
    "tokens": "token list",
    "token-add": "token add",
    "token-revoke": "token revoke",
    "sessions": "session list",
    "session-end": "session end",
}
# Those of them that do more than the verb: `pause --queue` is `queue pause`.
_MODULES = {"connect": "connector"}  # where the module has another name
OLD_COMMANDS = ("pause", "resume", "cancel")


def load_noun(name: str) -> Noun:
    """The noun with all of its verbs."""
    module = f"{name}_" if iskeyword(name) else name.replace("-", "_")
    noun: Noun = import_module(f"mainspring.cli.nouns.{module}").noun
    for of, verb in APART:
        if of == name:
            noun.verbs = {verb: load_verb(of, verb), **noun.verbs}
    return noun


def load_verb(noun: str, verb: str) -> NounVerb:
    apart = APART.get((noun, verb))
    if apart is None:
        return load_noun(noun).verbs[verb]
    module = import_module(f"mainspring.cli.{apart}")
    return NounVerb(verb, module.command, module.EXAMPLES)


def load_command(name: str) -> NounVerb:
    """The command `name`: one without a noun, or an earlier name of a verb."""
    if name in OLD_COMMANDS:
        old: Noun = import_module("mainspring.cli.old_commands").noun
        return old.verbs[name]
    if name in OLD_NAMES:
        noun, _, verb = OLD_NAMES[name].partition(" ")
        return load_verb(noun, verb)
    module = import_module(f"mainspring.cli.{_MODULES.get(name, name).replace('-', '_')}")
    return NounVerb(name, module.command, module.EXAMPLES)


def find_command(words: str) -> NounVerb:
    """The command that the words name: `up`, `job list`, `jobs`, or `worker` for its default verb."""
    noun, _, verb = words.partition(" ")
    if noun not in NOUNS:
        return load_command(noun)
    apart = [name for of, name in APART if of == noun]
    if verb or apart:
        return load_verb(noun, verb or apart[0])
    return load_noun(noun).verbs[load_noun(noun).default or ""]
