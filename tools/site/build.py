"""Builds the site: `python -m tools.site.build [FOLDER]`, which `make docs` calls.

The pages are copied to a folder, together with those made from the code, and with the files that pages link to. mkdocs
runs in an environment of its own (tools/site.lock) and refuses a link that leads nowhere.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

from tools.site.pages import OTHERS, ROOT, navigation, title_of

WORK = ROOT / "build" / "site"
MKDOCS = ROOT / ".venv" / "site" / "bin" / "mkdocs"
_LINK = re.compile(r"(\]\()([^)\s#]+)(#[^)\s]*)?(\))")


def stage(folder: Path, *, generated: bool = True) -> None:
    """Write the pages that mkdocs reads."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(ROOT / "docs", folder / "docs")
    for name in OTHERS:
        shutil.copy(ROOT / name, folder / name)
    if generated:
        from tools.site.reference import pages

        for name, text in pages().items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    for page in sorted(folder.rglob("*.md")):
        page.write_text(_with_files(page.read_text(encoding="utf-8"), page, folder), encoding="utf-8")


def _with_files(text: str, page: Path, folder: Path) -> str:
    """The page with links to files of the source as links to copies, as texts. A folder is linked by its README, or
    else by its name alone."""

    def copied(found: re.Match[str]) -> str:
        target = found[2]
        if ":" in target or target.startswith("/"):
            return found[0]
        source = ROOT / page.parent.relative_to(folder) / target
        wanted = page.parent / target
        if source.is_dir():
            return (
                f"]({target.rstrip('/')}/README.md)"
                if (source / "README.md").exists()
                else "](" + _top(page, folder) + ")"
            )
        if not wanted.exists() and source.is_file():
            wanted = wanted.with_name(wanted.name + ".txt")
            wanted.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, wanted)
            return f"]({target}.txt)"
        return found[0]

    return _LINK.sub(copied, text)


def _top(page: Path, folder: Path) -> str:
    return "../" * len(page.parent.relative_to(folder).parts) + "README.md"


def configuration(folder: Path, site: Path) -> dict[str, object]:
    """What mkdocs.yml says, as JSON, which is YAML."""

    def titled(value: object) -> object:
        if isinstance(value, str):
            return {title_of(folder / value): value}
        if isinstance(value, list):
            return [titled(one) for one in value]
        assert isinstance(value, dict)
        return {name: one if isinstance(one, str) else titled(one) for name, one in value.items()}

    return {
        "site_name": "Mainspring",
        "docs_dir": str(folder),
        "site_dir": str(site),
        "use_directory_urls": False,
        "theme": {
            "name": "material",
            "font": False,
            "features": ["navigation.tabs", "navigation.indexes", "search.suggest", "content.code.copy", "toc.follow"],
            "palette": [
                {"media": "(prefers-color-scheme: light)", "scheme": "default"},
                {"media": "(prefers-color-scheme: dark)", "scheme": "slate"},
            ],
        },
        "plugins": [
            "search",
            {"mkdocstrings": {"handlers": {"python": {"paths": [str(ROOT / "src")], "options": {
                "show_source": False, "filters": ["!^_"], "show_signature_annotations": True, "line_length": 100,
            }}}}},
        ],
        "markdown_extensions": ["admonition", "tables", "toc", {"pymdownx.superfences": {}}, "pymdownx.highlight"],
        "validation": {
            "nav": {"omitted_files": "warn", "not_found": "warn"},
            "links": {"not_found": "warn", "anchors": "warn", "absolute_links": "warn", "unrecognized_links": "warn"},
        },
        "nav": titled(navigation()),
    }  # fmt: skip


def main() -> None:
    site = Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else WORK / "html"
    staged = WORK / "pages"
    stage(staged)
    file = WORK / "mkdocs.yml"
    file.write_text(json.dumps(configuration(staged, site), indent=1), encoding="utf-8")
    done = subprocess.run([MKDOCS, "build", "--strict", "--quiet", "--config-file", file], check=False)
    if done.returncode:
        sys.exit(done.returncode)
    print(f"the site is in {site}")


if __name__ == "__main__":
    main()
