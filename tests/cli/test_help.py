"""Help texts and imports of the command line."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from importlib import import_module

import pytest

VERBS = (
    "up", "server", "scheduler", "worker", "submit", "jobs", "job", "runs", "run", "why", "cancel", "pause", "resume",
    "run-now", "workers", "queues", "migrate", "timeline", "retry", "dead-letters", "dead-letter", "replay", "discard",
    "logs", "tasks", "drain", "preview", "tenants", "tenant-add", "tokens", "token-add", "token-revoke",
    "completion", "open", "sessions", "session-end",
)  # fmt: skip
BENCHES = (
    "throughput", "lag", "pickup", "submit", "schedules", "overhead", "process", "output", "failover", "overload",
)  # fmt: skip
EVERY_VERB = [[verb] for verb in VERBS] + [["bench", bench] for bench in BENCHES]


def test_every_verb_explains_itself_with_an_example(call: Callable[..., tuple[int, str, str]]) -> None:
    for verb in EVERY_VERB:
        code, out, _ = call(*verb, "--help")
        assert code == 0, verb
        _, found, examples = out.partition("Example")
        assert found and f"mainspring {' '.join(verb)}" in examples, verb


def test_help_fits_80_columns_and_its_examples_can_be_copied(
    call: Callable[..., tuple[int, str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    for verb in EVERY_VERB:
        _, out, _ = call(*verb, "--help")
        assert [line for line in out.splitlines() if len(line) > 80] == [], verb
        if verb[0] != "bench":
            examples = import_module(f"mainspring.cli.{verb[0].replace('-', '_')}").EXAMPLES
            assert set(examples) <= {line.strip() for line in out.splitlines()}, verb


def test_every_verb_that_shows_data_speaks_json(call: Callable[..., tuple[int, str, str]]) -> None:
    for verb in set(VERBS) - {"up", "server", "scheduler", "worker", "completion"}:
        assert "--json" in call(verb, "--help")[1], verb


def test_no_argument_at_all_shows_the_verbs(call: Callable[..., tuple[int, str, str]]) -> None:
    code, out, _ = call()
    assert code == 0
    assert all(verb in out for verb in [*VERBS, "bench"])
    code, out, err = call("bench")
    assert (code, err) == (0, "")
    assert all(bench in out for bench in BENCHES)


def test_help_does_not_load_what_only_the_verbs_need() -> None:
    heavy = "{'asyncpg', 'litestar', 'uvicorn', 'httpx', 'msgspec', 'uvloop'}"
    code = f"import sys; from mainspring.cli.main import main; main(['--help']); print({heavy} & set(sys.modules))"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.strip().splitlines()[-1] == "set()"
