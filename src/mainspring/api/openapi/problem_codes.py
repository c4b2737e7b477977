"""Every code of a problem document that a client can get, with its status and its meaning.

`problems_of` collects those of one operation: what its handler names, and what follows from its request.
"""

from __future__ import annotations

from collections.abc import Iterable

from mainspring.api.handlers import RouteHandler
from mainspring.api.reach import Reach
from mainspring.kernel.config import LARGE_BYTES
from mainspring.operations.access.permissions import SUBMITTER, VIEWER
from mainspring.operations.access.urgency import is_urgent

CODES: dict[str, tuple[int, str]] = {
    "invalid_json": (400, "the body is empty, is not JSON, is not UTF-8, or is nested too deeply"),
    "unauthorized": (401, "a token is required"),
    "invalid_token": (401, "the token is unknown, expired or revoked"),
    "invalid_session": (401, "the session has ended"),
    "wrong_secret": (401, "this is not the secret of the worker"),
    "wrong_password": (401, "the mail address or the password is wrong"),
    "invalid_link": (401, "the link was used before, or has expired"),
    "sign_in_over": (401, "the sign-in was begun in another browser, took too long, or was answered before"),
    "sign_in_refused": (401, "the provider has refused the code, or its ID token is not valid"),
    "sign_in_disabled": (403, "the person was disabled here"),
    "mail_not_verified": (403, "the provider gives no mail address that it has checked"),
    "mail_taken": (403, "there is an account with the mail address, which does not sign in at this provider"),
    "signs_in_elsewhere": (403, "the person signs in at a provider, and has no password here"),
    "wrong_host": (403, "the server does not accept this Host"),
    "wrong_origin": (403, "requests of other origins are refused"),
    "worker_token": (403, "the token is for workers"),
    "role_not_allowed": (403, "the role of the token does not allow this"),
    "not_yours": (403, "another token created it, and a submitter changes only its own"),
    "not_for_you": (403, "others decide this approval"),
    "narrowed_token": (403, "the token is narrowed, and the operation shows or changes more than it reaches"),
    "outside_token": (403, "the token is narrowed, and does not reach this queue, task or label"),
    "wrong_address": (403, "the token is not accepted from this address"),
    "wrong_csrf": (403, "the header Mainspring-CSRF is missing or wrong"),
    "session_needed": (403, "this needs the cookie of a session"),
    "token_needed": (403, "this needs a token"),
    "not_your_password": (403, "the password that was typed again is wrong"),
    "user_needed": (403, "this is for people who are signed in with a password"),
    "no_tenant": (403, "the user is in no tenant"),
    "wrong_token": (403, "the token that was typed is not that of the session"),
    "signed_in": (409, "the browser has a session, and a code does not replace it by itself"),
    "instance_admin_only": (403, "only an admin of the tenant `default` can do this"),
    "quota_exceeded": (403, "the request needs more than a quota of the tenant leaves; nothing was stored"),
    "wrong_incarnation": (403, "the request does not prove that it comes from this worker"),
    "not_found": (404, "it does not exist, or belongs to another tenant"),
    "no_such_route": (404, "there is no such path"),
    "body_too_slow": (408, "the body came too slowly, while others waited; nothing was stored"),
    "conflict": (409, "the request contradicts what exists; `errors` has the details if there are several"),
    "no_approval": (409, "the run does not wait for an approval"),
    "job_exists": (409, "the job_id is taken"),
    "idempotency_key_reused": (409, "the idempotency key was used by another request"),
    "unique_started": (409, "the job that has the unique key has started"),
    "unique_taken": (409, "the token is narrowed, and does not reach the job that has the unique key"),
    "unique_other_task": (409, "the job that has the unique key is of another task"),
    "limited": (409, "the job that has the unique key waits under a limit"),
    "already_fired": (409, "a one-time job that has fired cannot be changed"),
    "unreadable": (409, "what is stored about it cannot be read; it can only be cancelled"),
    "is_a_step": (409, "a step of a workflow is not a job of its own"),
    "source_moved": (409, "another connector has taken messages of the partition; continue from the stored offset"),
    "changed_meanwhile": (409, "somebody else has changed it; try again"),
    "owned_elsewhere": (409, "other job files own it"),
    "declared_in_code": (409, "the code of an application declares it"),
    "plan_changed": (409, "what would be done now is not the plan that was confirmed"),
    "job_cancelled": (409, "the job is cancelled"),
    "wrong_status": (409, "the status of the job does not allow this"),
    "not_paused": (409, "the job is not paused"),
    "backfill_ended": (409, "the backfill is completed or cancelled"),
    "too_many_backfills": (409, "the job has too many backfills that have not ended"),
    "count_changed": (409, "clearly more match than expected; `expected` has the number now"),
    "operation_ended": (409, "the operation is done, cancelled or failed"),
    "too_many_operations": (409, "too many operations of the tenant have not ended"),
    "run_ended": (409, "the run has ended"),
    "no_callback": (404, "there is no such address for a callback"),
    "callback_over": (409, "nothing waits for the callback any more"),
    "run_active": (409, "the workflow run has not ended"),
    "nothing_to_rerun": (409, "no step of the workflow run has failed"),
    "other_steps": (409, "the current definition has other steps or dependencies"),
    "run_alive": (409, "the run has not ended"),
    "overlap": (409, "another run of the job is alive, and its overlap rule is skip"),
    "replayed": (409, "the run was repeated before"),
    "no_result": (409, "the payload takes a result of another job, which has none yet"),
    "payload_dropped": (409, "the payload of the run was not kept; give one"),
    "strict_order": (409, "the limit is in strict order, and the job declares it without it"),
    "overlap_rule": (409, "the limit belongs to the overlap rule of a job"),
    "not_a_number_of_runs": (409, "the limit is a rate or a circuit breaker"),
    "channel_in_use": (409, "rules use the channel"),
    "not_ended": (409, "the notification is still being sent"),
    "calendar_in_use": (409, "jobs use the calendar"),
    "secret_in_use": (409, "jobs name the secret that files no longer have"),
    "no_master_key": (409, "the server has no master key, or not the one that encrypts the secrets"),
    "already_member": (409, "the person is in the tenant already"),
    "only_invited": (409, "the person has not accepted the invitation yet"),
    "user_disabled": (409, "the user is disabled"),
    "last_admin": (409, "it is the last admin token of its tenant"),
    "worker_gone": (409, "the worker has stopped or was lost"),
    "unknown_worker": (409, "the worker is not registered"),
    "too_many_workers": (409, "the tenant has too many live workers"),
    "fenced": (409, "the worker was lost; it continues as a new incarnation"),
    "version_mismatch": (412, "it has another version than If-Match"),
    "payload_too_large": (413, "the body or the payload is too large"),
    "batch_too_large": (413, "the batch has too many jobs"),
    "unsupported_media_type": (415, "the body is not application/json"),
    "invalid_input": (422, "a field has a wrong type or value"),
    "invalid_parameter": (422, "a parameter has the wrong type, occurs twice, or is out of range"),
    "unknown_field": (422, "the body has a field that does not exist; the hint has the nearest one"),
    "unknown_kind": (422, "this server does not have this kind of task; the hint names the package"),
    "unknown_parameter": (422, "the query has a parameter that does not exist, or the workflow does not have it"),
    "invalid_batch": (422, "jobs of the batch are wrong; `errors` names them"),
    "duplicate_step": (422, "two steps of the workflow have the same name, or one is named twice"),
    "invalid_reference": (422, "this is not a reference to a result, a parameter or an item"),
    "not_upstream": (422, "the step does not come before the one that refers to it"),
    "unknown_step": (422, "the workflow has no such step"),
    "is_a_workflow": (422, "a workflow is changed by /v1/workflows"),
    "bad_payload": (422, "the payload does not fit the parameters of the task"),
    "unknown_job": (422, "a job that it depends on does not exist, or was deleted"),
    "cycle": (422, "jobs, or steps of a workflow, wait for each other"),
    "has_references": (422, "the payload takes results of other jobs, and a backfill waits for none"),
    "cron_never_fires": (422, "the cron expression never fires"),
    "invalid_condition": (422, "this is not a condition on events"),
    "invalid_cron": (422, "this is not a cron expression"),
    "invalid_duration": (422, "this is not a duration, or it is out of range"),
    "invalid_rate": (422, "this is not a rate, or it is out of range"),
    "invalid_rrule": (422, "this is not a recurrence rule"),
    "invalid_size": (422, "this is not a size, or it is out of range"),
    "invalid_time": (422, "this is not a time, or it is out of range"),
    "weak_password": (422, "the password is too short, or easy to guess"),
    "invalid_secret": (422, "the value of the secret is too short, too long, or easy to guess"),
    "unknown_secret": (422, "the job names a secret that does not exist"),
    "secret_not_allowed": (
        422,
        "the secret is not for the queue or the task of the job, or not for what the payload says",
    ),
    "too_many_secrets": (422, "the job names too many secrets"),
    "masked_value": (422, "the value is the mask that viewers see in place of a secret"),
    "missing_timezone": (422, "the time has no time zone"),
    "unknown_timezone": (422, "there is no such time zone"),
    "calendar_allows_nothing": (422, "the calendar excludes everything"),
    "calendar_leaves_no_fire": (422, "the calendar of the schedule leaves no fire"),
    "extra_missing": (422, "the server lacks a library"),
    "unknown_channel": (422, "there is no such channel"),
    "unknown_calendar": (422, "there is no such calendar"),
    "unknown_country": (422, "there are no holidays of this country or subdivision"),
    "time_passed": (422, "the time has passed"),
    "already_fired_for": (422, "the job has fired for that time already"),
    "never_fires": (422, "the schedule has no fire"),
    "not_recurring": (422, "the job runs once, or only by hand"),
    "invalid_range": (422, "the range is empty, runs backwards, or is not over"),
    "no_fires": (422, "the schedule has no fire in the range"),
    "too_many_fires": (422, "the schedule has too many fires in the range"),
    "not_supported_yet": (422, "the field belongs to a feature that does not exist yet"),
    "unstorable_value": (422, "PostgreSQL cannot store a value of the payload"),
    "search_too_slow": (422, "the search reads too much; make it narrower"),
    "queue_full": (429, "too many runs wait in the queue or the tenant; nothing was stored"),
    "over_quota": (429, "the tenant has used up a quota for the moment; nothing was stored"),
    "overloaded": (429, "the server has too much to do; nothing was stored"),
    "too_many_requests": (429, "the tenant, the token or the address sends too many requests; nothing was stored"),
    "passwords_busy": (429, "the server checks two passwords at a time"),
    "sign_ins_busy": (429, "the server checks as many sign-ins at providers as it does at a time"),
    "too_many_attempts": (429, "too many attempts with wrong passwords; `Retry-After` says when to try again"),
    "too_many_streams": (429, "the session or token has too many event streams"),
    "streams_full": (503, "the server has too many event streams"),
    "provider_unavailable": (503, "the provider does not answer as it should"),
    "tables_held": (503, "a transaction holds the tables of jobs and runs"),
    "store_down": (503, "the database is unavailable"),
    "busy": (503, "a concurrent change was in conflict; nothing was stored"),
    "unavailable": (503, "it cannot be done at this moment"),
    "too_many_searches": (503, "too many lists of the tenant are under way"),
    "admissions_open": (
        503,
        "the limit is set; a transaction that began before may still use the old one",
    ),
    "list_too_slow": (503, "the list took too long"),
    "forecast_not_ready": (503, "the fires of a tenant with very many jobs are not counted yet"),
    "log_store_down": (503, "the log store fails"),
}


def problems_of(
    handler: RouteHandler, *, has_path: bool, has_parameters: bool, has_body: bool, reads_store: bool
) -> dict[int, list[str]]:
    """The codes of this operation by status."""
    codes = {"wrong_host", "wrong_origin", *handler.problems}
    if not handler.is_public:
        codes |= {"unauthorized", "invalid_session", "invalid_token", "worker_token", "role_not_allowed", "wrong_csrf"}
        codes |= {"narrowed_token", "wrong_address"}
        codes |= {"unknown_parameter", "invalid_parameter"}
    if SUBMITTER in handler.roles and VIEWER not in handler.roles:
        codes |= {"not_yours"}
    if handler.reach is Reach.FILTERED or handler.operation == "tokens.create":
        codes |= {"outside_token"}
    if has_path:
        codes |= {"not_found", "no_such_route"}
    if has_parameters:
        codes |= {"invalid_input"}
    if has_body:
        codes |= {"invalid_json", "payload_too_large", "unsupported_media_type", "invalid_input", "unknown_field"}
        codes |= {"unstorable_value"}
        if handler.request_max_body_size > LARGE_BYTES:
            codes |= {"too_many_requests", "body_too_slow"}
    if not is_urgent(handler.operation):
        codes |= {"overloaded", "too_many_requests"}
    if reads_store:
        codes |= {"store_down", "busy"}
    return _by_status(codes)


def _by_status(codes: Iterable[str]) -> dict[int, list[str]]:
    found: dict[int, list[str]] = {}
    for code in sorted(codes):
        found.setdefault(CODES[code][0], []).append(code)
    return dict(sorted(found.items()))
