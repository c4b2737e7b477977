"""The navigation of the site: every page of docs/, by what its reader wants."""

from __future__ import annotations

from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
# Pages outside docs/ that the site has, under the same path.
OTHERS = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")

SECTIONS: dict[str, tuple[str, ...]] = {
    "Tutorial": ("install", "quickstart"),
    "How to": (
        "schedules-in-code",
        "workflows",
        "dependencies",
        "events",
        "connect",
        "waits",
        "middleware",
        "http-tasks",
        "sql-tasks",
        "exactly-once",
        "transactional-submit",
        "uniqueness",
        "backfill",
        "operations",
        "dead-letters",
        "notifications",
        "sinks",
        "secrets",
        "job-files",
        "import",
        "testing",
        "recipes",
        "kinds-of-task",
    ),
    "Come from": (
        "coming-from-celery",
        "coming-from-apscheduler",
        "coming-from-airflow",
        "coming-from-temporal",
        "coming-from-kubernetes",
        "comparison",
    ),
    "Operate": (
        "deploy",
        "operating",
        "workers",
        "scaling",
        "backup",
        "failover",
        "upgrading",
        "releases",
        "capacity",
        "overload",
        "quotas",
        "tls",
        "edge",
        "oidc",
        "people",
        "access",
        "security",
        "audit",
        "runbooks/",
    ),
    "Reference": (
        "reference/sdk",
        "reference/command-line",
        "reference/settings",
        "reference/http-api",
        "command-line",
        "http-api",
        "cron",
        "recurrence",
        "calendars",
        "limits",
        "rates",
        "reading",
        "logs",
        "insights",
        "preview",
        "dashboard",
        "live",
        "tracing",
        "glossary",
    ),
    "Explanation": (
        "architecture",
        "packages",
        "lifecycle",
        "data-model",
        "guarantees",
        "exchange",
        "leases",
        "failure",
        "isolation",
        "pains",
        "requirements",
        "decisions/",
    ),
}
GENERATED = ("reference/sdk", "reference/command-line", "reference/settings", "reference/http-api")


def title_of(page: Path) -> str:
    """The first heading of a page."""
    for line in page.read_text(encoding="utf-8").splitlines():
        if line.startswith("# "):
            return line.removeprefix("# ").replace("`", "")
    return page.stem


def navigation() -> list[dict[str, Any]]:
    """As mkdocs takes it. A name with a slash at its end is a folder: all of its pages."""
    found: list[dict[str, Any]] = [{"Mainspring": "README.md"}]
    for section, names in SECTIONS.items():
        pages: list[Any] = []
        for name in names:
            if name.endswith("/"):
                inside = sorted((DOCS / name).glob("*.md"), key=lambda page: (page.name != "README.md", page.name))
                pages.append({name.rstrip("/").title(): [f"docs/{name}{page.name}" for page in inside]})
            else:
                pages.append(f"docs/{name}.md")
        found.append({section: pages})
    found.append({"Project": list(OTHERS[1:])})
    return found


def named_pages() -> list[str]:
    """The pages in the navigation, without those that are generated."""

    def flat(value: Any) -> list[str]:
        if isinstance(value, str):
            return [value]
        values = value.values() if isinstance(value, dict) else value
        return [page for one in values for page in flat(one)]

    return [page for page in flat(navigation()) if page not in {f"docs/{name}.md" for name in GENERATED}]
