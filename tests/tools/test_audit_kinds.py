"""What the audit names, the page can filter by, and the documentation lists."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RECORDED = re.compile(r'\brecord\(\s*connection,\s*caller,\s*"([a-z_]+)"')


def test_every_kind_of_the_audit_is_on_the_page_and_in_the_documentation() -> None:
    sources = (ROOT / "src/mainspring/operations").rglob("*.py")
    kinds = {kind for path in sources for kind in RECORDED.findall(path.read_text())}
    assert {"job", "token", "secret", "channel"} <= kinds
    page = (ROOT / "dashboard/src/pages/audit/AuditPage.tsx").read_text()
    documented = (ROOT / "docs/audit.md").read_text()
    assert [kind for kind in sorted(kinds) if f'["{kind}", "' not in page] == []
    assert [kind for kind in sorted(kinds) if f"`{kind}`" not in documented] == []
