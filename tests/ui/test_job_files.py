"""The page of a job says which job files own it, and whether it was changed since they were applied."""

from __future__ import annotations

from uuid import uuid4

import httpx
import pytest
from playwright.sync_api import expect

from tests.ui.conftest import Open

pytestmark = pytest.mark.slow


def test_the_page_says_which_files_own_a_job(open_page: Open, server: httpx.Client) -> None:
    job = f"f{uuid4().hex[:8]}"
    entry = {"kind": "jobs", "id": job, "body": {"command": "true", "cron": "@daily"}, "source": "jobs.yaml:12"}
    server.post("/v1/files:apply", json={"owner": f"owner-{job}", "objects": [entry]}).raise_for_status()
    page = open_page(f"/jobs/{job}")
    expect(page.get_by_text(f"Owned by job files: owner-{job}")).to_be_visible()
    expect(page.get_by_text("jobs.yaml:12")).to_be_visible()
    expect(page.get_by_text("Change it there.")).to_be_visible()
    server.patch(f"/v1/jobs/{job}", json={"timeout": "7m"}).raise_for_status()
    page.reload()
    expect(page.get_by_text("the next application undoes that")).to_be_visible()
