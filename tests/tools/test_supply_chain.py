"""What is installed is what was tested: the lock, the licences and the bill of materials agree with pyproject.toml."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from email.message import Message
from importlib.metadata import distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tools.licences import allowed, licence, refused
from tools.sbom import bill
from tools.shipped import LOCK, ROOT, applies, pins, requirements, shipped
from tools.vulnerabilities import findings

TOOLS_LOCK = ROOT / "tools" / "requirements.lock"
PATRONI_LOCK = ROOT / "tools" / "patroni.lock"
OLD_SERVER_LOCK = ROOT / "tools" / "old_server.lock"
OTHER_LOCKS = [TOOLS_LOCK, PATRONI_LOCK, OLD_SERVER_LOCK]


def declared() -> list[str]:
    build = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]
    return [*build, *requirements("dev")]


def test_every_requirement_is_in_the_lock_in_a_version_that_it_allows() -> None:
    locked = pins()
    for requirement in map(Requirement, declared()):
        pin = locked.get(canonicalize_name(requirement.name))
        assert pin and requirement.specifier.contains(pin.version), requirement


def test_a_server_is_not_installed_with_a_library_that_stops_it_while_a_password_is_hashed() -> None:
    """Argon2id of cryptography before 50 holds the interpreter lock."""
    bounds = {one.name: one.specifier for one in map(Requirement, requirements("server"))}
    assert not bounds["cryptography"].contains("49.9")


def test_the_lock_has_what_every_package_in_it_needs_on_every_platform() -> None:
    locked = pins()
    installed = [package for package in distributions() if canonicalize_name(package.name) in locked]
    for package in installed:
        for requirement in map(Requirement, package.requires or ()):
            if applies(requirement, set()):
                assert canonicalize_name(requirement.name) in locked, f"{package.name} needs {requirement}"


@pytest.mark.parametrize("lock", [LOCK, *OTHER_LOCKS], ids=lambda path: path.relative_to(ROOT).as_posix())
def test_every_version_of_a_lock_has_hashes_and_no_address(lock: Path) -> None:
    text = lock.read_text()
    found = pins(lock)
    assert len(found) == len(re.findall(r"^[A-Za-z0-9]", text, re.MULTILINE))
    assert [name for name, pin in found.items() if not pin.hashes] == []
    assert "://" not in text and "--index" not in text and "--find-links" not in text


@pytest.mark.parametrize("lock", OTHER_LOCKS, ids=lambda path: path.name)
def test_tools_are_locked_in_versions_that_they_declare(lock: Path) -> None:
    locked = pins(lock)
    for requirement in map(Requirement, lock.with_suffix(".in").read_text().splitlines()):
        assert requirement.specifier.contains(locked[canonicalize_name(requirement.name)].version)


def test_what_servers_of_before_need_is_not_installed_with_this_version() -> None:
    """Litestar requires polyfactory, and that requires faker: 32 MB that nothing of this version loads."""
    gone = {"faker", "litestar", "polyfactory"}
    assert gone <= pins(OLD_SERVER_LOCK).keys()
    assert not gone & pins().keys()
    metadata = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    asked = [*metadata["dependencies"], *(one for extra in metadata["optional-dependencies"].values() for one in extra)]
    assert not gone & {canonicalize_name(Requirement(one).name) for one in asked}


def test_licences_of_all_that_is_shipped_are_allowed() -> None:
    assert len(shipped()) > 20
    assert refused() == {}


@pytest.mark.parametrize(
    ("expression", "fits"),
    [
        ("MIT", True),
        ("MIT AND GPL-3.0-only", False),
        ("GPL-3.0-only OR Apache-2.0", True),
        ("(MIT OR GPL-2.0-only) AND BSD-3-Clause", True),
        ("AGPL-3.0-or-later", False),
        ("unknown", False),
        ("", False),
    ],
)
def test_an_expression_is_allowed_if_it_can_be_met(expression: str, fits: bool) -> None:
    assert allowed(expression) is fits


def test_a_package_that_names_no_licence_is_refused() -> None:
    assert not allowed(licence(Message()))


def test_the_bill_of_materials_lists_each_shipped_package_once_with_version_licence_and_hash(tmp_path: Path) -> None:
    wheel = tmp_path / "mainspring-9.9.9-py3-none-any.whl"
    wheel.write_bytes(b"a wheel")
    subprocess.run([sys.executable, "-m", "tools.sbom", str(wheel)], cwd=ROOT, check=True, capture_output=True)
    document = json.loads((tmp_path / "mainspring-9.9.9.cdx.json").read_text())
    assert document == json.loads(json.dumps(bill(wheel)))
    assert (document["bomFormat"], document["specVersion"]) == ("CycloneDX", "1.6")
    parts = {part["name"]: part for part in document["components"]}
    assert list(parts) == list(shipped()) and len(parts) == len(document["components"])
    assert "pytest" not in parts and "asyncpg" in parts
    locked = pins()
    for name, part in parts.items():
        assert part["version"] == locked[name].version
        assert part["purl"] == f"pkg:pypi/{name}@{part['version']}"
        assert part["licenses"] and part["hashes"]
    references = {part["bom-ref"] for part in (*document["components"], document["metadata"]["component"])}
    assert {entry["ref"] for entry in document["dependencies"]} == references
    assert all(need in references for entry in document["dependencies"] for need in entry["dependsOn"])


def test_a_known_vulnerability_is_told_and_a_missing_report_is_no_finding() -> None:
    report = {
        "dependencies": [
            {"name": "a", "version": "1", "vulns": []},
            {"name": "b", "version": "2", "vulns": [{"id": "PYSEC-1", "fix_versions": ["3"]}]},
        ]
    }
    assert findings(json.dumps(report)) == ["b 2: PYSEC-1, fixed in 3"]
    for broken in ("", "no network", "[]", "{}"):
        with pytest.raises(ValueError):
            findings(broken)
