-- Quotas of tenants, and what is counted for them.

-- name: all_quotas
select q.tenant_id, {{quota_numbers}} from mainspring.tenant_quotas q

-- name: get_quotas
select {{quota_row}} from mainspring.tenant_quotas q where q.tenant_id = $1

-- name: lock_quotas
select {{quota_row}} from mainspring.tenant_quotas q where q.tenant_id = $1 for no key update

-- name: create_quotas
-- unguarded: an insert; the primary key is the guard.
insert into mainspring.tenant_quotas (tenant_id, version, updated_by) values ($1, 0, $2) on conflict (tenant_id) do nothing

-- name: change_quotas
-- guard: version; the caller has locked the row.
update mainspring.tenant_quotas q
set stored_jobs = $4, submissions_per_second = $5, runs_per_minute = $6, queued_runs = $7, concurrent_runs = $8,
    payload_bytes = $9, log_bytes_per_day = $10, tokens = $11, history_days = $12, version = q.version + 1, updated_by = $3,
    updated_at = (select clock_timestamp())
where tenant_id = $1 and version = $2
returning {{quota_row}}

-- name: recount_gate
-- The gate of a tenant that gets a quota of concurrent runs counts what runs already, before anything is claimed.
-- guard: the caller has locked the row.
update mainspring.gates set counted = false where gate_id = $1

-- name: lock_submissions
-- The bucket of submissions, for one that takes tokens of it.
select q.submissions_per_second, q.tat, (select clock_timestamp()) as now
from mainspring.tenant_quotas q
where q.tenant_id = $1
for no key update

-- name: submissions
select q.submissions_per_second, q.tat, (select clock_timestamp()) as now
from mainspring.tenant_quotas q
where q.tenant_id = $1

-- name: take_submissions
-- guard: the caller has locked the row.
update mainspring.tenant_quotas set tat = $2 where tenant_id = $1

-- name: stored_jobs_allowed
select q.stored_jobs from mainspring.tenant_quotas q where q.tenant_id = $1

-- name: lock_stored_jobs
-- One transaction of a tenant at a time counts and stores. The row of the quotas is not locked: submissions take tokens from it,
-- also for the transaction that stores.
select pg_advisory_xact_lock({{wide_lock_key('stored_jobs/' || $1::int)}})

-- name: count_stored_jobs
-- Jobs that wait for a time or recur, at most $2.
select count(*)::int
from (select from mainspring.jobs where tenant_id = $1 and status not in ({{JOB_COMPLETED}}, {{JOB_CANCELLED}})
      limit $2) as stored

-- name: count_starts
-- Attempts that have begun in the last minute, at most $2: of runs that are with workers or have ended since.
select count(*)::int
from ((select from mainspring.runs r
       where r.tenant_id = $1 and r.state = {{RUNNING}} and r.claimed_at > (select clock_timestamp()) - interval '1 minute'
       limit $2)
      union all
      (select from mainspring.run_history h
       where h.tenant_id = $1 and h.ended_at > (select clock_timestamp()) - interval '1 minute'
         and h.started_at > (select clock_timestamp()) - interval '1 minute'
       limit $2)
      limit $2) as started

-- name: count_tokens
-- Personal ones, too; members are no tokens.
select count(*)::int
from mainspring.tokens
where tenant_id = $1 and revoked_at is null and (expires_at is null or expires_at > (select clock_timestamp()))
  and (user_id is null or member_id is not null)

-- name: lanes_of_tenant
select lane_id from mainspring.lanes where tenant_id = $1

-- name: log_bytes_today
select coalesce(sum(bytes), 0)::bigint
from mainspring.log_usage
where tenant_id = $1 and day = ((select clock_timestamp()) at time zone 'UTC')::date
