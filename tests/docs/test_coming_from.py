"""The pages for people who come from other schedulers: their code parses, and ours does what the page says."""

from __future__ import annotations

import ast
import re
import types
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

import mainspring.testing
from mainspring.cli.imports.kubernetes import read_manifests
from mainspring.domain.file_jobs import in_file, wanted_job
from mainspring.kernel.clock import SYSTEM_CLOCK
from mainspring.wire.jobs import JobRequest

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGES = sorted(DOCS.glob("coming-from-*.md"))
BLOCK = re.compile(r"^```(python|yaml)\n# (.+?)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def blocks(name: str) -> dict[str, str]:
    return {title: text for _, title, text in BLOCK.findall((DOCS / f"coming-from-{name}.md").read_text())}


def ours(name: str) -> Any:
    module = types.ModuleType("shop")
    exec(compile(blocks(name)["shop.py"], f"coming-from-{name}.md", "exec", dont_inherit=True), vars(module))
    return module


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_each_page_has_both_versions(page: Path) -> None:
    found = BLOCK.findall(page.read_text())
    assert [title.startswith("with ") for _, title, _ in found] == [True, False]
    for language, _, text in found:
        (ast.parse if language == "python" else yaml.safe_load)(text)


def test_celery() -> None:
    shop = ours("celery")
    with mainspring.testing.run(shop.app, start="2026-01-01T00:00:00Z") as box:
        box.advance("2d")
        assert [run.result for run in box.runs_of(shop.charge)] == [{"charged": 5}] * 2


def test_apscheduler() -> None:
    shop = ours("apscheduler")
    with mainspring.testing.run(shop.app, start="2026-01-01T00:00:00Z") as box:
        box.advance("1d")
        assert len(box.runs_of(shop.report)) == 1 and 143 <= len(box.runs_of(shop.poll)) <= 145


@pytest.mark.parametrize(
    ("name", "workflow", "steps"),
    [("airflow", "nightly", ["shop.extract", "shop.load"]), ("temporal", "checkout", ["shop.reserve", "shop.pay"])],
)
def test_workflows(name: str, workflow: str, steps: list[str]) -> None:
    made = getattr(ours(name), workflow)
    request = made.definition()
    assert [step["task"] for step in request["steps"]] == steps
    assert request["steps"][1]["depends_on"] == [request["steps"][0]["name"]]


def test_kubernetes() -> None:
    """The job of the page is what the import makes of its CronJob, and it can be applied."""
    found = blocks("kubernetes")
    [imported] = read_manifests(found["with Kubernetes"], "cronjob.yaml").jobs
    body = yaml.safe_load(found["jobs.yaml"])["jobs"]["report"]
    now = SYSTEM_CLOCK.wall()

    def defined(fields: dict[str, Any]) -> Any:
        request = msgspec.json.decode(msgspec.json.encode(fields), type=JobRequest)
        return wanted_job(in_file(request, "report"), now, {})

    assert defined(body) == defined(imported.body)
