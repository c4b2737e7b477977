"""The dashboard is built when its sources change, and is in the wheel. Its types are those of the API."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tools import dashboard_types, page

ROOT = Path(__file__).resolve().parents[2]


_NPM = """#!/bin/sh
[ "$1" = ci ] && exit 0
[ -e broken ] && exit 1
while [ "$1" != --outDir ]; do shift; done
cp -r src "$2"
"""


@pytest.fixture
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A dashboard, and an npm whose build copies its files."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, text in (("node", "#!/bin/sh\necho v24.1.0\n"), ("npm", _NPM)):
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    folder = tmp_path / "dashboard"
    (folder / "src").mkdir(parents=True)
    (folder / "src" / "index.html").write_text("one")
    (folder / "package.json").write_text("{}")
    return folder


def test_it_is_built_when_its_sources_have_changed_and_only_then(sources: Path, tmp_path: Path) -> None:
    built = tmp_path / "ui" / "static"
    assert page.build(sources, built)
    assert (built / "index.html").read_text() == "one"
    (sources / "node_modules").mkdir()
    (sources / "node_modules" / "x.js").write_text("not a source")
    assert not page.build(sources, built)
    (sources / "src" / "index.html").rename(sources / "src" / "other.html")
    (sources / "src" / "index.html").write_text("two")
    assert page.build(sources, built)
    assert sorted(path.name for path in built.iterdir()) == ["index.html", "other.html", "sources.sha256"]
    (sources / "broken").touch()
    with pytest.raises(page.CannotBuild, match="run build"):
        page.build(sources, built)
    assert (built / "index.html").read_text() == "two", "a failed build leaves the page as it was"


def test_a_source_distribution_without_the_sources_keeps_its_page(tmp_path: Path) -> None:
    built = tmp_path / "static"
    built.mkdir()
    (built / "index.html").write_text("one")
    assert not page.is_current(tmp_path / "none", built)
    (built / "sources.sha256").write_text("x")
    assert page.is_current(tmp_path / "none", built)


def test_without_node_the_rest_works_unless_the_page_is_required(
    sources: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(page.sysconfig, "get_path", lambda name: "/nowhere")
    with pytest.raises(page.CannotBuild, match=r"Node\.js"):
        page.build(sources, sources.parent / "static")
    for wanted, code in (("", 0), ("skip", 0), ("required", 1)):
        monkeypatch.setenv(page.SETTING, wanted)
        monkeypatch.setattr(page, "build", _cannot)
        assert page.main() == code


def _cannot() -> bool:
    raise page.CannotBuild("there is no Node.js")


def test_the_wheel_carries_the_page(tmp_path: Path) -> None:
    if not page.is_current():
        pytest.skip("the page was not built: there is no Node.js here")
    environment = {**os.environ, page.SETTING: "required"}
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(build, cwd=ROOT, env=environment, check=True, capture_output=True)
    [wheel] = tmp_path.glob("*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    expected = {f"mainspring/ui/static/{path.relative_to(page.BUILT).as_posix()}" for path in page.BUILT.rglob("*.*")}
    assert expected <= names
    assert not any("node_modules" in name or name.endswith(".lock") for name in names)


def test_the_types_are_no_source_of_the_page(sources: Path) -> None:
    """`make check` writes them, and the page is not built again."""
    before = page.digest(sources)
    (sources / page.TYPES).parent.mkdir()
    (sources / page.TYPES).write_text("export type JobView = never;")
    assert page.digest(sources) == before


def test_nothing_of_the_types_is_left_in_the_page() -> None:
    """So it is built where the types are not: from a source distribution, and from a clone."""
    texts = [path.read_text() for path in (page.SOURCES / "src").rglob("*.ts*") if path != page.SOURCES / page.TYPES]
    found = [one for text in texts for one in re.findall(r'^((?:im|ex)port [^;]*) from "[^"]*/schema";$', text, re.M)]
    assert len(found) > 20
    assert [one for one in found if not one.startswith(("import type ", "export type "))] == []


@pytest.mark.slow
def test_the_types_are_those_of_the_api(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not dashboard_types.can_check():
        pytest.skip("there is no Node.js here, or the packages of the dashboard are not installed")
    monkeypatch.setattr(dashboard_types, "TYPES", tmp_path / "schema.ts")
    dashboard_types.write(dashboard_types.described())
    written = (tmp_path / "schema.ts").read_text()
    assert "export type JobView =" in written and "next_fire_at" in written
