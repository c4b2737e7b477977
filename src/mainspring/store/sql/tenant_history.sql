-- The history of tenants that keep it for a shorter time than others: it is deleted, a day and a batch at a time.

-- name: turn
-- One process at a time deletes, until the end of the transaction. A plan for any day and any number of runs would read the
-- whole day for each batch.
select pg_try_advisory_xact_lock({{lock_key('tenant_history')}})
where set_config('plan_cache_mode', 'force_custom_plan', true) is not null

-- name: due
-- DueDay in store/tenant_history.py: the oldest day that is to be deleted, and the tenants that have come equally far.
-- Partitions older than $1 days are dropped for all tenants.
with known as (
    select ((select clock_timestamp()) at time zone 'UTC')::date as today
), open as (
    select q.tenant_id, greatest(q.history_from, k.today - $1::int) as day,
           case when q.history_from >= k.today - $1::int then q.history_cursor end as cursor, k.today - q.history_days as until
    from mainspring.tenant_quotas q, known k
    where q.history_days < $1::int
)
select day, cursor, array_agg(tenant_id order by tenant_id) as tenants, max(until - day) as days
from open
where day < until
group by day, cursor
order by day, cursor nulls first
limit 1

-- name: is_quiet
-- Whether in the minute $1 no more runs ended than on the average of the day before.
select 1440 * coalesce(sum(ended) filter (where span = {{MINUTE}}), 0) <= coalesce(sum(ended) filter (where span = {{HOUR}}), 0)
from (select span, succeeded + failed + cancelled + skipped as ended
      from mainspring.rollups
      where task = '' and queue = ''
        and ((span = {{MINUTE}} and at = $1::timestamptz)
             or (span = {{HOUR}} and at >= $1::timestamptz - interval '1 day' and at < $1::timestamptz))) as recent

-- name: some_runs
-- SomeRuns in store/tenant_history.py: of the next $5 runs after $3 that ended between $1 and $2, at most $6 of the tenants $4.
with page as materialized (
    select h.run_id, h.tenant_id
    from mainspring.run_history h
    where h.ended_at >= $1 and h.ended_at < $2 and h.run_id > $3
    order by h.run_id
    limit $5
), chosen as materialized (
    select run_id from page where tenant_id = any ($4::int[]) order by run_id limit $6
), stretch as (
    select count(*) = $5 as more, (select count(*) from chosen) = $6 as enough from page
)
select coalesce((select array_agg(run_id) from chosen), '{}') as run_ids,
       case when s.enough then (select run_id from chosen order by run_id desc limit 1)
            when s.more then (select run_id from page order by run_id desc limit 1) end as cursor
from stretch s

-- name: logs_of
-- ExpiredLog in store/logs.py.
select run_id, attempt, fence, tenant_id from mainspring.run_logs where run_id = any ($1::uuid[])

-- name: keep_keys_of
-- The keys of their jobs remember when these runs ended.
-- unguarded: the time only rises.
with page as materialized (
    select {{run_with_keys}} from mainspring.run_history where run_id = any ($1::uuid[]) and ended_at >= $2 and ended_at < $3
), {{kept_keys}}
select

-- name: delete_output
-- guard: the runs have ended, so no worker appends; the objects are deleted already.
with chunks as (
    delete from mainspring.log_chunks where run_id = any ($1::uuid[])
)
delete from mainspring.run_logs where run_id = any ($1::uuid[])

-- name: delete_runs
-- guard: ended runs never change; the day and the tenants are compared again.
with gone as (
    delete from mainspring.run_history
    where run_id = any ($1::uuid[]) and ended_at >= $2 and ended_at < $3 and tenant_id = any ($4::int[])
    returning run_id
)
delete from mainspring.attempts where run_id in (select run_id from gone) and ended_at < $3

-- name: move
-- guard: the advisory lock; the caller compares the count.
update mainspring.tenant_quotas set history_from = $2, history_cursor = $3 where tenant_id = any ($1::int[])

-- name: tenants_by_days
-- The tenants that keep their history for less than $1 days, by that number.
select history_days, array_agg(tenant_id) as tenants from mainspring.tenant_quotas where history_days < $1::int group by history_days
