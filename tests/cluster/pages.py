"""The parts of docs/guarantees.md that are made: the numbers of the proofs, and the mutants with their rules."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from tests.cluster.ledger import proofs

PAGE = Path(__file__).resolve().parents[2] / "docs" / "guarantees.md"


def write_pages() -> None:
    PAGE.write_text(with_parts(PAGE.read_text(encoding="utf-8")), encoding="utf-8")


def with_parts(text: str) -> str:
    """The page with both parts as they are now."""
    for name, content in (("numbers", numbers()), ("mutants", mutant_table())):
        before, mark, rest = text.partition(f"<!-- {name}: made by `python -m tests.cluster.proof pages` -->\n")
        _, end, after = rest.partition(f"<!-- end of {name} -->")
        assert mark and end, f"the page has no place for {name}"
        text = f"{before}{mark}\n{content}\n{end}{after}"
    return text


def numbers() -> str:
    """The sums of all proofs, and the newest one."""
    all_of_them = proofs()
    rows = [
        ("proofs", len(all_of_them)),
        ("hours under faults", round(sum(proof.minutes for proof in all_of_them) / 60, 2)),
        ("faults", sum(proof.faults for proof in all_of_them)),
        ("of them two at a time", sum(proof.in_pairs for proof in all_of_them)),
        ("kinds of faults in the newest", all_of_them[-1].kinds if all_of_them else 0),
        ("calls of clients", sum(proof.calls for proof in all_of_them)),
        ("runs", sum(proof.runs for proof in all_of_them)),
        ("fires, and misses that were recorded", sum(proof.fires for proof in all_of_them)),
        ("changes of rows that were judged", sum(proof.events for proof in all_of_them)),
        (
            "times as long as on a quiet machine everything took in the newest",
            all_of_them[-1].slowness if all_of_them else 1.0,
        ),
        ("violations", sum(len(proof.violations) for proof in all_of_them)),
    ]
    lines = ["| | |", "| --- | --- |", *(f"| {what} | {count:,} |" for what, count in rows), ""]
    lines += [
        f"- {proof.at:%Y-%m-%d}, seed {proof.seed}: {words}" for proof in all_of_them for words in proof.violations
    ]
    return "\n".join(lines).rstrip() + "\n"


def mutant_table() -> str:
    rows = sorted({(words, rule) for words, rule in _mutants()}, key=lambda row: (row[1][0], int(row[1][1:]), row[0]))
    return "\n".join(["| mutant | rule |", "| --- | --- |", *(f"| {words} | {rule} |" for words, rule in rows)]) + "\n"


def _mutants() -> Iterator[tuple[str, str]]:
    """Each mutant in words, and the rule that finds it, as the tests of the checker have them."""
    for file in sorted(Path(__file__).parent.glob("test_*mutants.py")):
        module = import_module(f"tests.cluster.{file.stem}")
        for mutant, scene in module.SCENES.items():
            yield _words(module, mutant), scene[1] if isinstance(scene, tuple) else module.rule_of(mutant)


def _words(module: Any, mutant: Any) -> str:
    name = getattr(module.MUTANTS[mutant], "__name__", mutant) if isinstance(mutant, str) else mutant.__name__
    kind = module.__name__.rpartition(".test_")[2].removesuffix("mutants").strip("_")
    return f"{name.replace('_', ' ')} ({kind})" if kind else str(name.replace("_", " "))
