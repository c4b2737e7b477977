"""/v1/schedules: schedules that belong to no job."""

from __future__ import annotations

from typing import Any

from litestar import Request, post

from mainspring.api.answers import FIELDS_OF_A_JOB
from mainspring.api.bodies import PreviewBody
from mainspring.api.openapi import request_examples as examples
from mainspring.api.services import caller_of, services_of
from mainspring.wire.preview import PreviewRequest, SchedulePreview


@post(
    "/v1/schedules:preview", dto=PreviewBody, return_dto=None, status_code=200,
    summary="See the next fires of a schedule, without a job", operation="schedules.preview",
    problems=FIELDS_OF_A_JOB, examples=examples.PREVIEWS,
)  # fmt: skip
async def preview_schedule(request: Request[Any, Any, Any], data: PreviewRequest) -> SchedulePreview:
    """The schedule in words, its next fires in UTC and in its zone, what the changes of the clocks do to them, and a
    proposal if many jobs fire at the same moments. Nothing is stored. It is refused as a job with it would be."""
    return await services_of(request).previewer.preview(caller_of(request), data)
