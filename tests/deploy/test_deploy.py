"""What deploy/ has can be used: commands and options exist, names fit together, nothing runs as root without need, and
linters and schemas agree where they are installed (`make deploy-tools`)."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main
import yaml

from mainspring import __version__
from mainspring.cli.commands import load_noun
from mainspring.cli.main import build
from tests.deploy.chart import CHART, rendered

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
TOOLS = ROOT / ".venv" / "deploy" / "bin"
COMPOSE = yaml.safe_load((DEPLOY / "compose" / "compose.yaml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
ALL_VALUES: dict[str, Any] = {
    "server": {"tlsSecret": "jobs-tls", "publicUrl": "https://jobs.example.com"},
    "workers": {
        "default": {"autoscaling": {"enabled": True}},
        "gpu": {
            "replicas": 1, "queues": "gpu", "slots": 2, "tokenSecret": "gpu-worker", "image": "shop:1",
            "app": "shop:app", "resources": {}, "autoscaling": {"enabled": False},
        },
    },
    "networkPolicy": {
        "clients": [{"namespaceSelector": {"matchLabels": {"name": "ingress"}}}],
        "database": [{"ipBlock": {"cidr": "10.0.0.0/8"}}],
    },
}  # fmt: skip


def needs(path: str | Path) -> str:
    found = shutil.which(str(path))
    if found is None:
        pytest.skip(f"{path} is not installed; `make deploy-tools` installs what pip can")
    return found


def commands() -> Iterator[tuple[str, list[str]]]:
    """Every call of mainspring in deploy/, with the place where it is."""
    for name, service in SERVICES.items():
        words = service.get("command", [])
        if service.get("entrypoint"):
            text = words[0].replace("\\\n", " ")
            words = shlex.split(re.findall(r"mainspring (.*?)>", text, re.DOTALL)[0])
        if "mainspring" in service["image"]:
            yield f"compose: {name}", words
    for unit in sorted((DEPLOY / "systemd").glob("*.service")):
        [line] = re.findall(r"^ExecStart=\S+/mainspring (.*)$", unit.read_text(), re.MULTILINE)
        yield unit.name, shlex.split(line)
    for values in ({}, ALL_VALUES):
        for template, objects in rendered(values).items():
            for one in objects:
                for container in pod_of(one).get("containers", ()):
                    yield f"{template}: {one['metadata']['name']}", container["args"]


def pod_of(one: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = one.get("spec", {}).get("template", {}).get("spec", {})
    return found


def test_every_command_and_option_exists() -> None:
    whole: Any = typer.main.get_command(build())
    count = 0
    for where, words in commands():
        command, count = whole, count + 1
        while words and words[0] in getattr(command, "commands", {}):
            command, words = command.commands[words[0]], words[1:]
        if hasattr(command, "commands"):
            command = command.commands[load_noun(command.name).default]
        options = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
        given = {word for word in words if word.startswith("--")}
        assert given and given <= options, where
    assert count >= 10


def test_versions_are_those_of_the_package() -> None:
    meta = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert (meta["version"], meta["appVersion"]) == (__version__, __version__)
    assert yaml.safe_load((CHART / "values.yaml").read_text())["image"]["tag"] == __version__
    assert f"mainspring:{__version__}" in (DEPLOY / "container" / "Containerfile").read_text()
    assert COMPOSE["services"]["server"]["image"].endswith(f"mainspring:{__version__}}}")


def test_the_checklist_names_every_check_of_doctor() -> None:
    sources = (ROOT / "src" / "mainspring" / "roles" / "checkup").glob("*.py")
    checks = {
        name for file in sources for name in re.findall(r"\b(?:ok|warning|error)\(\s*\"([\w ]+)\"", file.read_text())
    }
    table = (ROOT / "docs" / "deploy.md").read_text().partition("## Checklist")[2]
    cells = [line.split("|")[2] for line in table.splitlines() if line.startswith("|")][2:]
    assert {name for cell in cells for name in re.findall(r"`([^`]+)`", cell)} == checks


def test_the_image_is_built_in_stages_and_does_not_run_as_root() -> None:
    text = (DEPLOY / "container" / "Containerfile").read_text()
    stages = re.findall(r"^FROM (\S+)", text, re.MULTILINE)
    last = text.rpartition("\nFROM ")[2]
    assert len(stages) == 2 and all(":" in stage and not stage.endswith(":latest") for stage in stages)
    assert re.search(r"^USER 10001:10001$", last, re.MULTILINE) and "COPY . ." not in last
    for word in re.findall(r"^COPY (?!--from)(.*) \S+$", text, re.MULTILINE):
        assert (ROOT / word).exists(), word
    kept = (DEPLOY / "container" / "Containerfile.dockerignore").read_text().splitlines()
    for line in kept:
        if line.startswith("!"):
            assert (ROOT / line[1:]).exists(), line
    assert "*" in kept and "!.venv" not in kept


def test_the_services_of_compose_fit_together() -> None:
    volumes, secrets = set(COMPOSE["volumes"]), set(COMPOSE["secrets"])
    for name, service in SERVICES.items():
        assert {one.partition(":")[0] for one in service.get("volumes", ())} <= volumes, name
        assert set(service.get("secrets", ())) <= secrets, name
        assert set(service.get("depends_on", ())) <= set(SERVICES), name
        if name != "postgres":
            assert service["read_only"] and service["cap_drop"] == ["ALL"], name
        for port in service.get("ports", ()):
            assert port.startswith("127.0.0.1:"), f"{name} is open to other machines without TLS"
    assert {f"/run/secrets/{one}" for one in SERVICES["server"]["secrets"]} == set(
        re.findall(r"/run/secrets/[a-z-]+", json.dumps(SERVICES["server"]))
    )


@pytest.mark.parametrize("values", [{}, ALL_VALUES], ids=["defaults", "everything"])
def test_the_chart(values: dict[str, Any]) -> None:
    objects = [one for found in rendered(values).values() for one in found]
    by_kind: dict[str, list[dict[str, Any]]] = {}
    for one in objects:
        by_kind.setdefault(one["kind"], []).append(one)
    assert {"Deployment", "Service", "PodDisruptionBudget", "NetworkPolicy"} <= set(by_kind)
    labels = [one["spec"]["template"]["metadata"]["labels"] for one in by_kind["Deployment"]]
    assert len({one["metadata"]["name"] for one in by_kind["Deployment"]}) == len(labels) == (3 if values else 2)
    selectors = [
        one["spec"]["selector"]["matchLabels"]
        for kind in ("Deployment", "PodDisruptionBudget")
        for one in by_kind[kind]
    ]
    selectors += [one["spec"]["selector"] for one in by_kind["Service"]]
    selectors += [one["spec"]["podSelector"]["matchLabels"] for one in by_kind["NetworkPolicy"]]
    for selector in selectors:
        assert any(selector.items() <= each.items() for each in labels), selector
    for one in by_kind["Deployment"]:
        pod = pod_of(one)
        assert pod["securityContext"]["runAsNonRoot"] and pod["terminationGracePeriodSeconds"] >= 40
        mounts = {volume["name"] for volume in pod["volumes"]}
        for container in pod["containers"]:
            assert {mount["name"] for mount in container["volumeMounts"]} == mounts
            assert container["securityContext"]["readOnlyRootFilesystem"]
            assert all(isinstance(word, str) for word in container["args"]), container["args"]
    server = pod_of(
        by_kind["Deployment"][0]
        if "server" in by_kind["Deployment"][0]["metadata"]["name"]
        else by_kind["Deployment"][-1]
    )
    probes = {
        name: server["containers"][0][name]["httpGet"] for name in ("startupProbe", "livenessProbe", "readinessProbe")
    }
    assert {probe["scheme"] for probe in probes.values()} == {"HTTPS" if values else "HTTP"}
    assert probes["readinessProbe"]["path"] == "/readyz" and probes["livenessProbe"]["path"] == "/healthz"
    if values:
        [scaler] = by_kind["HorizontalPodAutoscaler"]
        target = next(
            one for one in by_kind["Deployment"] if one["metadata"]["name"] == scaler["spec"]["scaleTargetRef"]["name"]
        )
        assert "replicas" not in target["spec"]
        metric = scaler["spec"]["metrics"][0]["external"]
        assert metric["metric"]["name"] in (ROOT / "docs" / "scaling.md").read_text()
        assert metric["target"]["averageValue"] == "8"


@pytest.mark.parametrize("values", [{}, ALL_VALUES], ids=["defaults", "everything"])
def test_the_chart_is_what_kubernetes_accepts(values: dict[str, Any], tmp_path: Path) -> None:
    validate = needs(TOOLS / "kubernetes-validate")
    objects = [one for found in rendered(values).values() for one in found]
    file = tmp_path / "objects.yaml"
    file.write_text(yaml.safe_dump_all(objects))
    done = subprocess.run([validate, "--strict", "--quiet", str(file)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_helm_renders_the_same(tmp_path: Path) -> None:
    helm = needs("helm")
    for values in ({}, ALL_VALUES):
        file = tmp_path / "values.yaml"
        file.write_text(yaml.safe_dump(values))
        text = subprocess.run(
            [helm, "template", "jobs", str(CHART), "--values", str(file)], capture_output=True, text=True, check=True
        ).stdout
        found = sorted((one for one in yaml.safe_load_all(text) if one), key=str)
        assert found == sorted((one for many in rendered(values).values() for one in many), key=str)


def test_a_linter_finds_nothing_in_the_containerfile() -> None:
    hadolint = needs(TOOLS / "hadolint")
    done = subprocess.run(
        [hadolint, str(DEPLOY / "container" / "Containerfile")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_compose_file_has_the_form_of_its_specification() -> None:
    check = needs(TOOLS / "check-jsonschema")
    done = subprocess.run(
        [check, "--builtin-schema", "vendor.compose-spec", str(DEPLOY / "compose" / "compose.yaml")],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def test_systemd_can_read_the_units(tmp_path: Path) -> None:
    verify = needs("systemd-analyze")
    for unit in (DEPLOY / "systemd").glob("*.service"):
        text = unit.read_text().replace("/opt/mainspring/bin/mainspring", "/bin/true")
        (tmp_path / unit.name.replace("@", "@1")).write_text(text)
    units = [str(one) for one in sorted(tmp_path.iterdir())]
    done = subprocess.run([verify, "verify", "--man=no", *units], capture_output=True, text=True, check=False)
    said = [line for line in (done.stdout + done.stderr).splitlines() if str(tmp_path) in line or "mainspring" in line]
    assert said == []


@pytest.mark.slow
def test_the_image_is_built_and_says_its_version() -> None:
    engine = shutil.which("podman") or shutil.which("docker")
    if engine is None or subprocess.run([engine, "info"], capture_output=True, check=False).returncode:
        pytest.skip("neither podman nor docker can run here")
    line = [engine, "build", "--quiet", "--file", str(DEPLOY / "container" / "Containerfile"), str(ROOT)]
    built = subprocess.run(line, capture_output=True, text=True, check=False)
    if built.returncode and "FROM" in built.stderr:
        pytest.skip("the base image cannot be fetched here")
    assert built.returncode == 0, built.stderr
    image = built.stdout.strip().splitlines()[-1]
    said = subprocess.run([engine, "run", "--rm", image, "--version"], capture_output=True, text=True, check=True)
    assert __version__ in said.stdout
