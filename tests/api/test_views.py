"""Saved views: a filter and columns of a list with a name, which all of a tenant see."""

from __future__ import annotations

from uuid import uuid4

import httpx
import pytest

from tests.api.bookkeeping import problem

pytestmark = pytest.mark.anyio
FAILING = {"list": "jobs", "filter": {"health": "failing", "owner": "bi"}, "columns": ["name", "last"]}


async def test_a_view_is_saved_changed_listed_and_deleted(api: httpx.AsyncClient) -> None:
    name = f"Failing, of BI {uuid4().hex[:6]}"
    made = await api.put(f"/v1/views/{name}", json=FAILING)
    assert made.status_code == 201 and made.json()["filter"] == FAILING["filter"]
    again = await api.put(f"/v1/views/{name}", json=FAILING)
    assert (again.status_code, again.json()["version"]) == (200, 1), "the same again changes nothing"
    changed = {"list": "jobs", "filter": {"health": "late"}}
    answer = await api.put(f"/v1/views/{name}", json=changed, headers={"If-Match": made.headers["ETag"]})
    assert answer.json()["version"] == 2 and "columns" not in answer.json()
    stale = await api.put(f"/v1/views/{name}", json=FAILING, headers={"If-Match": made.headers["ETag"]})
    assert problem(stale)["code"] == "version_mismatch"
    runs = await api.put(f"/v1/views/{name} too", json={"list": "runs"})
    assert runs.status_code == 201
    listed = (await api.get("/v1/views", params={"list": "jobs", "limit": 100})).json()["views"]
    assert name in [one["name"] for one in listed] and f"{name} too" not in [one["name"] for one in listed]
    assert (await api.delete(f"/v1/views/{name}")).json()["version"] == 2
    assert (await api.get(f"/v1/views/{name}")).status_code == 404
    told = (await api.get("/v1/audit", params={"kind": "view", "id": name})).json()["entries"]
    assert [entry["operation"] for entry in told] == ["views.delete", "views.put", "views.put"]


@pytest.mark.parametrize(
    ("name", "body", "field"),
    [
        ("a:b", FAILING, "name"),
        ("x" * 101, FAILING, "name"),
        (" x", FAILING, "name"),
        ("x", FAILING | {"list": "secrets"}, "list"),
        ("x", FAILING | {"filter": {"q": "a\nb"}}, "filter"),
        ("x", FAILING | {"filter": {"q": 1}}, "filter[...]"),
        ("x", FAILING | {"columns": ["c"] * 21}, "columns"),
    ],
)
async def test_a_view_that_cannot_be_is_refused(api: httpx.AsyncClient, name: str, body: object, field: str) -> None:
    before = (await api.get("/v1/views")).json()
    refused = await api.put(f"/v1/views/{name}", json=body)
    assert refused.status_code == 422, refused.text
    told = problem(refused)
    assert (told.get("field") or told["errors"][0]["field"]) == field
    assert (await api.get("/v1/views")).json() == before


async def test_a_viewer_looks_and_saves_nothing(api: httpx.AsyncClient) -> None:
    name = f"seen {uuid4().hex[:6]}"
    await api.put(f"/v1/views/{name}", json=FAILING)
    token = (await api.post("/v1/tokens", json={"role": "viewer", "name": "looks"})).json()["token"]
    viewer = {"Authorization": f"Bearer {token}"}
    assert (await api.get(f"/v1/views/{name}", headers=viewer)).status_code == 200
    assert (await api.put(f"/v1/views/{name}", json=FAILING, headers=viewer)).status_code == 403
    assert (await api.delete(f"/v1/views/{name}", headers=viewer)).status_code == 403
