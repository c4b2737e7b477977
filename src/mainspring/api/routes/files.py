"""/v1/files: job files are applied in one request."""

from __future__ import annotations

from mainspring.api.answers import Answer
from mainspring.api.handlers import post
from mainspring.api.openapi import request_examples as examples
from mainspring.api.services import caller_of, services_of
from mainspring.api.web import Request
from mainspring.operations.access.permissions import ADMINS
from mainspring.wire.files import MAX_FILE_BYTES, ExportAnswer, ExportRequest, FilesAnswer, FilesRequest

Http = Request
_PROBLEMS = ("invalid_batch", "plan_changed", "changed_meanwhile", "calendar_in_use", "channel_in_use", "secret_in_use")


@post(
    "/v1/files:plan", status_code=200, summary="Say what the application of job files would change",
    operation="files.plan", roles=ADMINS, request_max_body_size=MAX_FILE_BYTES, problems=_PROBLEMS,
    answers={200: Answer("What would change. Nothing was changed.")}, examples=examples.FILES,
)  # fmt: skip
async def plan_files(request: Http, data: FilesRequest) -> FilesAnswer:
    """Does what `:apply` does, in a transaction that is rolled back. `errors` of a refusal names the objects by their
    index."""
    return await services_of(request).files.plan(caller_of(request), data)


@post(
    "/v1/files:apply", status_code=200, summary="Apply job files, all or nothing",
    operation="files.apply", roles=ADMINS, request_max_body_size=MAX_FILE_BYTES, problems=_PROBLEMS,
    answers={200: Answer("What was changed. All of it is stored.")}, examples=examples.FILES,
)  # fmt: skip
async def apply_files(request: Http, data: FilesRequest) -> FilesAnswer:
    """Creates and changes what differs, in one transaction. A file says all of an object: a field that it does not have
    gets its default. What the owner has and the files no longer have stays, unless `prune` is given. What other files
    own is refused."""
    return await services_of(request).files.apply(caller_of(request), data)


@post(
    "/v1/files:export", status_code=200, summary="Read what there is, as job files say it",
    operation="files.export", shows_payloads=True, roles=ADMINS, examples=examples.EXPORTS,
)  # fmt: skip
async def export_files(request: Http, data: ExportRequest) -> ExportAnswer:
    """One kind of object, page by page. The application of what it answers changes nothing. A page may have fewer
    objects than `limit`, or none, while `next` says that more may follow."""
    return await services_of(request).files.export(caller_of(request), data)


HANDLERS = (plan_files, apply_files, export_files)
