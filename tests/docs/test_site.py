"""The documentation site: every page is in its navigation, the pages from the code have what the code has, and it is
built with strict links where its environment is installed (`make docs`)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import mainspring
from mainspring.cli.commands import NOUNS
from mainspring.cli.settings import all_settings
from tools.site.build import MKDOCS, stage
from tools.site.pages import DOCS, OTHERS, ROOT, named_pages


def test_every_page_is_in_the_navigation_once() -> None:
    pages = {page.relative_to(ROOT).as_posix() for page in DOCS.rglob("*.md")}
    assert sorted(named_pages()) == sorted([*pages, *OTHERS])


def test_links_to_files_of_the_source_lead_to_copies(tmp_path: Path) -> None:
    stage(tmp_path, generated=False)
    text = (tmp_path / "docs" / "job-files.md").read_text()
    assert "../examples/job-files/jobs.yaml.txt" in text
    assert (tmp_path / "examples" / "job-files" / "jobs.yaml.txt").exists()


@pytest.mark.slow
def test_pages_from_the_code_have_all_of_it() -> None:
    from tools.site.reference import pages

    made = pages()
    commands, settings = made["docs/reference/command-line.md"], made["docs/reference/settings.md"]
    assert all(f"## mainspring {noun}\n" in commands for noun in NOUNS)
    assert all(f"| {setting.key} |" in settings or setting.variable in settings for setting in all_settings())
    assert all(f"## {name}\n" in made["docs/reference/sdk.md"] for name in mainspring.__all__ if name[0] != "_")
    assert "`POST /v1/files:apply`" in made["docs/reference/http-api.md"]


@pytest.mark.slow
def test_the_site_is_built_with_strict_links(tmp_path: Path) -> None:
    if not MKDOCS.exists():
        pytest.skip("the environment of the site is not installed; `make docs` installs it")
    done = subprocess.run(
        [sys.executable, "-m", "tools.site.build", str(tmp_path)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for page in ("README.html", "docs/comparison.html", "docs/reference/sdk.html", "search/search_index.json"):
        assert (tmp_path / page).exists() or (page == "README.html" and (tmp_path / "index.html").exists()), page
