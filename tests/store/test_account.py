"""PostgreSQL's account is created once, even if several first starts happen on a machine at the same time."""

from __future__ import annotations

import os
import pwd
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest

from mainspring.store.embedded import folder

# Like the real one: it checks before it locks, and an existing name is an error.
USERADD = """#!/bin/sh
if [ -s {accounts} ]; then echo "user exists" >&2; exit 9; fi
sleep 0.05
echo made >> {accounts}
"""


def test_first_starts_at_the_same_moment_make_one_account(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    accounts = tmp_path / "accounts"
    (tmp_path / "useradd").write_text(USERADD.format(accounts=accounts))
    (tmp_path / "useradd").chmod(0o755)

    def look(name: str) -> SimpleNamespace:
        if not accounts.exists():
            raise KeyError(name)
        return SimpleNamespace(pw_uid=1234, pw_gid=1234)

    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(pwd, "getpwnam", look)
    with ThreadPoolExecutor(6) as starts:
        notices: list[list[str]] = [[] for _ in range(6)]
        found = list(starts.map(folder.account_for_root, notices))
    assert found == [folder.FolderAccount(uid=1234, gid=1234)] * 6
    assert accounts.read_text() == "made\n"
    assert sum(map(bool, notices)) == 1, "one of them reports it"
