"""/v1/schedules: schedules that belong to no job."""

from __future__ import annotations

from mainspring.api.answers import FIELDS_OF_A_JOB
from mainspring.api.handlers import post
from mainspring.api.openapi import request_examples as examples
from mainspring.api.reach import Reach
from mainspring.api.services import caller_of, services_of
from mainspring.api.web import Request
from mainspring.operations.access.permissions import READERS
from mainspring.wire.preview import PreviewRequest, ScheduleExplanation, SchedulePreview


@post(
    "/v1/schedules:preview", status_code=200,
    summary="See the next fires of a schedule, without a job", operation="schedules.preview", reach=Reach.NONE,
    roles=READERS,
    problems=FIELDS_OF_A_JOB, examples=examples.PREVIEWS,
)  # fmt: skip
async def preview_schedule(request: Request, data: PreviewRequest) -> SchedulePreview:
    """The schedule in words, its next fires in UTC and in its zone, what the changes of the clocks do to them, and a
    proposal if many jobs fire at the same moments. Nothing is stored. It is refused as a job with it would be."""
    return await services_of(request).previewer.preview(caller_of(request), data)


@post(
    "/v1/schedules:explain",
    status_code=200,
    summary="Explain a schedule while it is written",
    operation="schedules.explain",
    roles=READERS,
    examples=examples.EXPLANATIONS,
)
async def explain_schedule(request: Request, data: PreviewRequest) -> ScheduleExplanation:
    """For forms: a schedule that would be refused is answered with 200 too, and `problems` names each wrong field.
    Otherwise as preview, with warnings about the coming year and about minutes in which many jobs fire. Nothing is
    stored."""
    return await services_of(request).explainer.explain(caller_of(request), data)


HANDLERS = (preview_schedule, explain_schedule)
