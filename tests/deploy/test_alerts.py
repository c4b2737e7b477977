"""Alert rules and dashboards name what the code exports, fire when they should, and lead to a runbook."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import asyncpg
import httpx
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from mainspring.kernel import metrics
from mainspring.store.pool import Store
from tests.api.test_insights import folded
from tests.operations.hand_worker import HandWorker, outcome

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
RULES = ROOT / "deploy" / "prometheus" / "rules.yml"
RULE_TESTS = RULES.with_name("rules.test.yml")
DASHBOARDS = sorted((ROOT / "deploy" / "grafana").glob("*.json"))
OF_PROMETHEUS = {"job", "instance", "le"}  # labels that the scrape or a histogram adds
Exported = dict[str, set[str]]

_NAME = re.compile(r"\b(mainspring[\w:]*|up)\b(?:\{([^}]*)\})?")
_MATCHER = re.compile(r'(\w+)\s*(?:=~|!~|!=|=)\s*"')
_GROUPED = re.compile(r"\b(?:by|without|on|ignoring)\s*\(([^)]*)\)")

needs_promtool = pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")


def rules() -> list[dict[str, Any]]:
    return [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]


def dashboard_expressions(path: Path) -> Iterator[str]:
    dashboard = json.loads(path.read_text())
    for panel in dashboard["panels"]:
        yield from (target["expr"] for target in panel.get("targets", ()))
    for variable in dashboard["templating"]["list"]:
        if variable["type"] == "query":
            yield re.sub(r"label_values\((\w+), (\w+)\)", r"sum by (\2) (\1)", variable["query"]["query"])


def wrong_names(expression: str, exported: Exported) -> Iterator[str]:
    """What an expression names and nothing exports."""
    known = set(OF_PROMETHEUS)
    for name, matchers in _NAME.findall(_GROUPED.sub("", expression)):
        if name not in exported:
            yield name
            continue
        known |= exported[name]
        yield from (
            f"{name}: {label}" for label in _MATCHER.findall(matchers) if label not in exported[name] | OF_PROMETHEUS
        )
    for labels in _GROUPED.findall(expression):
        yield from (f"by {label}" for label in re.findall(r"\w+", labels) if label not in known)


def series_of(text: str) -> list[tuple[str, dict[str, str], float]]:
    families = text_string_to_metric_families(text)
    return [(sample.name, sample.labels, sample.value) for family in families for sample in family.samples]


async def a_scrape_in_trouble(api: httpx.AsyncClient, connection: asyncpg.Connection, store: Store) -> str:
    """What a server exports after runs that succeeded, failed and wait, and with a job that is named."""
    await api.post(
        "/v1/jobs", json={"job_id": "nightly", "task": "noop", "schedule": {"every": "1h"}, "max_retries": 0}
    )
    await api.post("/v1/jobs/nightly:runNow", json={})
    await api.post("/v1/jobs:batch", json=[{"task": "noop", "max_retries": 0}] * 2)
    worker = HandWorker(api)
    orders = await worker.claim(3)
    mine = [order for order in orders if order.job_id == "nightly"]
    others = [order for order in orders if order.job_id != "nightly"]
    await worker.report(
        outcome(mine[0], ran_ms=5.0), outcome(others[0], ran_ms=5.0), outcome(others[1], "FAILED", error="no")
    )
    await api.post("/v1/jobs:batch", json=[{"task": "noop", "queue": "nobody"}] * 5)
    await folded(store, connection)
    return (await api.get("/metrics?gauges=yes&job=nightly")).text


def exported_by(text: str) -> Exported:
    exported: Exported = {"up": set()}
    for family in metrics.REGISTRY.collect():  # also those with labels and without a sample yet
        exported.setdefault(family.name + ("_total" if family.type == "counter" else ""), set())
    metrics.connections_cut.labels(why="full")
    for name, labels, _ in [*series_of(text), *series_of(metrics.exposition().decode())]:
        exported.setdefault(name, set()).update(labels)
    return exported


@pytest.mark.anyio
async def test_every_name_in_rules_and_dashboards_is_exported(
    api: httpx.AsyncClient, connection: asyncpg.Connection, store: Store, tmp_path: Path
) -> None:
    text = await a_scrape_in_trouble(api, connection, store)
    exported = exported_by(text)
    by_file = {RULES.name: [rule["expr"] for rule in rules()]}
    by_file |= {path.name: list(dashboard_expressions(path)) for path in DASHBOARDS}
    for rule in rules():
        if (name := rule.get("record")) is not None:
            exported[name] = set(re.findall(r"\w+", " ".join(_GROUPED.findall(rule["expr"]))))
    assert len(by_file) >= 3 and all(len(expressions) > 10 for expressions in by_file.values())
    wrong = {
        name: found for name, expressions in by_file.items()
        if (found := [each for expression in expressions for each in wrong_names(expression, exported)])
    }  # fmt: skip
    assert wrong == {}
    assert list(wrong_names('sum by (task) (mainspring_queue_depth{quue="a"}) / mainspring_none', exported)) == [
        "mainspring_queue_depth: quue", "mainspring_none", "by task"
    ]  # fmt: skip
    if shutil.which("promtool") is not None:
        alerts_of_the_recorded_series(text, tmp_path)


def alerts_of_the_recorded_series(text: str, folder: Path) -> None:
    """The alerts of a server in trouble whose figures stay as they are for an hour: they fire, and no others."""
    series = []
    for name, labels, value in [*series_of(text), ("up", {}, 1.0)]:
        pairs = {**labels, "job": "mainspring", "instance": "here"}
        given = ",".join(f'{label}="{each}"' for label, each in pairs.items())
        series.append({"series": f"{name}{{{given}}}", "values": f"{value}x60"})
    firing = {
        "MainspringNoWorker": {"queue": "nobody"}, "MainspringDeadLetters": {},
        "MainspringShardsWithoutScheduler": {}, "MainspringServerNotReady": {"instance": "here"},
    }  # fmt: skip
    by_name = {rule["alert"]: rule for rule in rules() if "alert" in rule}
    expected = [
        {"labels": f'{{__name__="ALERTS",alertname="{name}",alertstate="firing",severity="{severity}",job="mainspring"'
                   + "".join(f',{label}="{value}"' for label, value in labels.items()) + "}", "value": 1}
        for name, labels in firing.items()
        for severity in [by_name[name]["labels"]["severity"]]
    ]  # fmt: skip
    check = {
        "rule_files": [str(RULES)], "evaluation_interval": "1m",
        "tests": [{
            "interval": "1m", "input_series": series,
            "promql_expr_test": [{"expr": 'ALERTS{alertstate="firing"}', "eval_time": "1h", "exp_samples": expected}],
        }],
    }  # fmt: skip
    file = folder / "recorded.yml"
    file.write_text(yaml.safe_dump(check))
    run_promtool("test", "rules", str(file))


def run_promtool(*words: str) -> None:
    done = subprocess.run(["promtool", *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@needs_promtool
def test_the_rules_are_right_and_fire_on_recorded_series(tmp_path: Path) -> None:
    run_promtool("check", "rules", str(RULES))
    run_promtool("test", "rules", str(RULE_TESTS))
    broken = tmp_path / "rules.yml"
    broken.write_text(RULES.read_text().replace("> 0.9\n", "> 0.99\n"))
    shutil.copy(RULE_TESTS, tmp_path)
    with pytest.raises(AssertionError, match="MainspringUtilisation"):
        run_promtool("test", "rules", str(tmp_path / RULE_TESTS.name))


def test_the_rules_have_what_is_promised() -> None:
    by_name = {rule["alert"]: rule for rule in rules() if "alert" in rule}
    for name, bound in (
        ("StartLag", "> 10"), ("FireLag", "> 10"), ("SuccessRate", "< 0.95"), ("Retries", "> 0.05"),
        ("Utilisation", "> 0.9"), ("NoWorker", "== 0"), ("DeadLetters", "> 0"), ("LeaseChurn", "> 500"),
        ("ServerNotReady", "== 0"), ("DatabaseConnections", "> 0.85"), ("DatabaseWraparound", "> 1e9"),
    ):  # fmt: skip
        assert bound in by_name[f"Mainspring{name}"]["expr"], name


def test_every_alert_leads_to_a_runbook() -> None:
    for rule in rules():
        if "alert" in rule:
            assert set(rule["annotations"]) == {"summary", "description", "runbook"}, rule["alert"]
            assert (ROOT / rule["annotations"]["runbook"]).is_file(), rule["annotations"]["runbook"]


def test_panels_of_dashboards_lie_side_by_side() -> None:
    for path in DASHBOARDS:
        dashboard = json.loads(path.read_text())
        assert dashboard["uid"] == path.stem
        cells: set[tuple[int, int]] = set()
        for panel in dashboard["panels"]:
            place = panel["gridPos"]
            own = {
                (x, y)
                for x in range(place["x"], place["x"] + place["w"])
                for y in range(place["y"], place["y"] + place["h"])
            }
            assert not own & cells and max(x for x, _ in own) < 24, f"{path.name}: {panel['title']}"
            cells |= own
