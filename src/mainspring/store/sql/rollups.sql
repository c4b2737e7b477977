-- Rollups: the fold of what has ended, by watermark, and the series that are read from them.

-- name: fold_lock
-- One server at a time folds. Until the end of the transaction.
select pg_try_advisory_xact_lock({{lock_key('rollups')}})

-- name: clock
-- Read before writers_since, so that whoever begins to write later writes later times.
select (select clock_timestamp())

-- name: writers_since
-- The oldest transaction that has begun to write to the history and has not ended: what it writes has its own times, at or
-- after its beginning. A transaction that is not seen here has ended, or begins to write after this. hidden: there is one
-- of another role, whose beginning this role may not see.
select min(s.xact_start) as since, coalesce(bool_or(s.query = '<insufficient privilege>'), false) as hidden
from pg_locks l
join pg_stat_activity s on s.pid = l.pid
where l.locktype = 'relation' and l.mode = 'RowExclusiveLock'
  and l.database = (select oid from pg_database where datname = current_database())
  and l.relation in ('mainspring.run_history'::regclass, 'mainspring.attempts'::regclass,
                     'mainspring.missed_fires'::regclass)

-- name: watermark
select folded_until from mainspring.rollup_watermark

-- name: begin_watermark
-- From the first day of the history on.
-- guard: there is none.
insert into mainspring.rollup_watermark (folded_until)
select {{first_day_of_history}}
on conflict (only_row) do nothing

-- name: move_watermark
-- guard: folded_until.
update mainspring.rollup_watermark set folded_until = $2 where folded_until = $1

-- name: something_ended
-- Whether anything ended from $1 on and before $2.
select exists (select from mainspring.run_history where ended_at >= $1 and ended_at < $2)
    or exists (select from mainspring.attempts where ended_at >= $1 and ended_at < $2)
    or exists (select from mainspring.missed_fires where recorded_at >= $1 and recorded_at < $2)

-- name: fold
-- Adds what ended from $1 on and before $2 to the minute $4, in which both lie. $3: no run has ended later. The history is
-- read once and grouped by numbers: lane, state and bucket of the duration, and lane and bucket of the lag; all the rest
-- works on these groups. A run with one attempt has its start in the history, the first attempt of any other is in
-- attempts. A lane counts for its task in its queue, for its queue and for its tenant; each of these has the number of its
-- first lane, so that texts are compared once. $5: the bounds of buckets. Returns how many runs and attempts were read, how many runs failed, and the failed attempts.
-- unguarded: move_watermark in the same transaction is the guard.
with ended as materialized (
    select grouping(of_ran) = 1 as of_lag, coalesce(of_ran, of_lag_too) as key, count(*)::int as n, sum(us) as us
    from (select lane_id * 4096::bigint + state * 256 + coalesce({{bucket(ran)}}, {{NO_BUCKET}}) as of_ran,
                 lane_id * 256::bigint + {{bucket(lag)}} as of_lag_too, round(ran * 1000) as us
          from (select h.lane_id, h.state, h.ran_ms::float8 as ran,
                       case when h.attempt = 1 then {{lag_ms(h, h.started_at)}} end as lag
                from mainspring.run_history h
                where h.ended_at >= $1 and h.ended_at < $2) as each
          offset 0) as each
    group by grouping sets ((of_ran), (of_lag_too))
), again as materialized (
    select a.run_id, a.outcome, a.ended_at, {{first_line(a.error)}} as line, run.lane_id, run.job_id, {{bucket(t.lag)}} as bucket
    from mainspring.attempts a
    cross join lateral ({{run_of_attempt}}) as run
    cross join lateral (select case when a.attempt = 1 then {{lag_ms(run, a.started_at)}} end as lag) as t
    where a.ended_at >= $1 and a.ended_at < $2 and a.outcome <> 'RETURNED'
), by_lane as materialized (
    select (key >> 12)::int as lane_id, sum(n) filter (where key >> 8 & 15 = {{SUCCESS}}) as succeeded,
           sum(n) filter (where key >> 8 & 15 = {{FAILED}}) as failed,
           sum(n) filter (where key >> 8 & 15 = {{CANCELLED}}) as cancelled,
           sum(n) filter (where key >> 8 & 15 = {{SKIPPED}}) as skipped, 0 as retried, 0 as lost, 0 as missed, sum(us) as ran_us
    from ended where not of_lag group by 1
    union all
    select lane_id, 0, 0, 0, 0, count(*) filter (where outcome = 'FAILED'), count(*) filter (where outcome = 'LOST'), 0, 0
    from again group by lane_id
    union all
    select j.lane_id, 0, 0, 0, 0, 0, 0, sum(m.count), 0
    from mainspring.missed_fires m
    join mainspring.jobs j on j.tenant_id = m.tenant_id and j.job_id = m.job_id
    where m.recorded_at >= $1 and m.recorded_at < $2
    group by j.lane_id
), touched as materialized (
    select lane_id, tenant_id, task, queue, min(lane_id) over (partition by tenant_id, queue, task) as of_task,
           min(lane_id) over (partition by tenant_id, queue) as of_queue, min(lane_id) over (partition by tenant_id) as of_all
    from mainspring.lanes
    where lane_id in (select lane_id from by_lane)
), rows_of_lane as materialized (
    select t.lane_id, r.number
    from touched t
    cross join lateral unnest(array[t.of_task::bigint << 2, t.of_queue::bigint << 2 | 1, t.of_all::bigint << 2 | 2]) as r (number)
), names as (
    select of_task::bigint << 2 as number, tenant_id, task, queue from touched where lane_id = of_task
    union all
    select of_queue::bigint << 2 | 1, tenant_id, '', queue from touched where lane_id = of_queue
    union all
    select of_all::bigint << 2 | 2, tenant_id, '', '' from touched where lane_id = of_all
), counted as (
    select r.number, coalesce(sum(b.succeeded), 0) as succeeded, coalesce(sum(b.failed), 0) as failed,
           coalesce(sum(b.cancelled), 0) as cancelled, coalesce(sum(b.skipped), 0) as skipped,
           coalesce(sum(b.retried), 0) as retried, coalesce(sum(b.lost), 0) as lost, coalesce(sum(b.missed), 0) as missed,
           coalesce(sum(b.ran_us), 0) as ran_us
    from by_lane b
    join rows_of_lane r on r.lane_id = b.lane_id
    group by r.number
), buckets as (
    select coalesce(of_task, of_queue, of_all) as key, sum(n)::bigint as n
    from (select t.of_task::bigint << 11 | b.bucket as of_task, t.of_queue::bigint << 11 | 512 | b.bucket as of_queue,
                 t.of_all::bigint << 11 | 1024 | b.bucket as of_all, b.n
          from (select (key >> 8)::int as lane_id, 256 | (key & 255)::int as bucket, n
                from ended where of_lag and key is not null
                union all
                select lane_id, 256 | bucket, 1 from again where bucket is not null
                union all
                select (key >> 12)::int, (key & 255)::int, n
                from ended where not of_lag and key & 255 <> {{NO_BUCKET}}) as b
          join touched t on t.lane_id = b.lane_id
          offset 0) as each
    group by grouping sets ((of_task), (of_queue), (of_all))
), histograms as materialized (
    select key >> 8 as number, (min(key) & 255)::smallint as first,
           ('{' || string_agg(n || repeat(',0', (next_key - key)::int - 1), ',' order by key) || '}')::bigint[] as counts
    from (select key, n, case when following >> 8 = key >> 8 then following else key + 1 end as next_key
          from (select key, n, lead(key) over (order by key) as following from buckets) as each) as each
    group by key >> 8
), added as (
    insert into mainspring.rollups as r
        (span, tenant_id, task, queue, {{rollup_columns}})
    select {{MINUTE}}, k.tenant_id, k.task, k.queue, $4, c.succeeded, c.failed, c.cancelled, c.skipped, c.retried, c.lost,
           c.missed, c.ran_us, lag.first, lag.counts, ran.first, ran.counts
    from counted c
    join names k on k.number = c.number
    left join histograms ran on ran.number = c.number << 1
    left join histograms lag on lag.number = c.number << 1 | 1
    {{add_to_rollups}}
)
select coalesce((select sum(n) from ended where not of_lag), 0)::bigint + (select count(*) from again) as read,
       coalesce((select sum(failed) from by_lane), 0)::bigint as failed,
       (select json_agg(each) from (
            select t.tenant_id, t.queue, t.task, a.line, a.count, 0 as failed, a.first_at, a.last_at, a.sample_run, a.job_ids
            from (select lane_id, coalesce(line, '') as line, count(*) as count, min(ended_at) as first_at,
                         max(ended_at) as last_at, (array_agg(run_id))[1] as sample_run,
                         (array_remove(array_agg(distinct job_id), null))[1:{{SAMPLE_JOBS}}] as job_ids
                  from again
                  where outcome in ('FAILED', 'LOST')
                  group by 1, 2) as a
            join touched t on t.lane_id = a.lane_id) as each)::text as attempts_text

-- name: close_minute
-- Adds the minute $1, which is over, to its hour and day.
-- unguarded: move_watermark in the same transaction is the guard; it passes the end of a minute once.
insert into mainspring.rollups as r
    (span, tenant_id, task, queue, {{rollup_columns}})
select longer.span, m.tenant_id, m.task, m.queue, date_trunc(longer.unit, m.at, 'UTC'), {{rollup_counts}}, lag_first, lag,
       ran_first, ran
from mainspring.rollups m
cross join (values ({{HOUR}}, 'hour'), ({{DAY}}, 'day')) as longer (span, unit)
where m.span = {{MINUTE}} and m.at = $1
{{add_to_rollups}}

-- name: forget_since
-- Forgets what is not before $1, the beginning of a day: it is folded again, because the clock has been set back.
-- unguarded: the caller moves the watermark in the same transaction.
delete from mainspring.rollups where at >= $1

-- name: forget_groups_since
-- unguarded: as above.
delete from mainspring.failure_groups where at >= $1

-- name: prune_rollups
-- unguarded: nobody adds to what is so old.
delete from mainspring.rollups
where (span = {{MINUTE}} and at < (select clock_timestamp()) - $1 * interval '1 second')
   or (span = {{HOUR}} and at < (select clock_timestamp()) - $2 * interval '1 second')
   or (span = {{DAY}} and at < (select clock_timestamp()) - $3 * interval '1 second')

-- name: series
-- The rollups of a span from $3 on: of all ($4 and $5 are null), a queue, a task, or a task in a queue.
select {{rollup_columns}}
from mainspring.rollups
where span = $1 and tenant_id = $2 and at >= $3 and task = coalesce($4, '')
  and (case when $4::text is null then queue = coalesce($5, '') else $5::text is null or queue = $5 end)

-- name: hours_with_ends
-- The hours in which runs of the task $2 or the queue $3 ended, newest first, $4 at most.
select at, sum(succeeded + failed + cancelled + skipped)::bigint as ended
from mainspring.rollups
where span = {{HOUR}} and tenant_id = $1 and task = coalesce($2, '')
  and (case when $2::text is null then queue = $3 else $3::text is null or queue = $3 end)
group by at
having sum(succeeded + failed + cancelled + skipped) > 0
order by at desc
limit $4

-- name: ends_of_job
-- The newest $3 ended runs of a job, and the run $4 that is itself a one-time job.
(select {{run_end}} from mainspring.run_history h
 where h.tenant_id = $1 and h.job_id = $2
 order by h.run_id desc
 limit $3)
union all
select {{run_end}} from mainspring.run_history h
where h.tenant_id = $1 and h.run_id = $4::uuid and h.job_id is null

-- name: newest_ends
-- NewestEnd in store/rollups.py: up to $3 of each of the jobs $2.
select j.job_id, j.next_fire_at, ended.state, ended.ended_at, ended.ran_ms, ended.lag_ms
from mainspring.jobs j
left join lateral (
    select h.run_id, h.state, h.ended_at, h.ran_ms,
           case when h.attempt = 1 then {{lag_ms(h, h.started_at)}} end as lag_ms
    from mainspring.run_history h
    where h.tenant_id = j.tenant_id and h.job_id = j.job_id
    order by h.run_id desc
    limit $3
) as ended on true
where j.tenant_id = $1 and j.job_id = any ($2::text[])
order by j.job_id, ended.run_id desc

-- name: outcomes
-- OutcomeRow in store/rollups.py: of each of the jobs $2 up to $3 of its newest runs since $4.
select j.job_id, ended.run_id, ended.state, ended.scheduled_for, ended.ended_at, ended.ran_ms
from mainspring.jobs j
cross join lateral (
    select h.run_id, h.state, h.scheduled_for, h.ended_at, h.ran_ms
    from mainspring.run_history h
    where h.tenant_id = j.tenant_id and h.job_id = j.job_id and h.ended_at >= $4
    order by h.run_id desc
    limit $3
) as ended
where j.tenant_id = $1 and j.job_id = any ($2::text[])
order by j.job_id, ended.run_id desc

-- name: by_task
-- The rollups of a span at $3, by task and queue. All rows of that time are read by their age: in the order of the key each
-- task has rows of many other times.
select * from (
    select {{rollup_columns}}, task, queue
    from mainspring.rollups
    where span = $1 and tenant_id = $2 and at = $3 and task <> ''
    offset 0) as each
order by task, queue
limit $4

-- name: by_queue
-- How many runs of each queue ended in the minute $2, without those that were skipped.
select queue, succeeded + failed + cancelled as ended, succeeded, failed
from mainspring.rollups
where span = {{MINUTE}} and tenant_id = $1 and task = '' and queue <> '' and at = $2

-- name: durations_by_queue
-- How long runs of each queue took, of the rollups of a span from $3 on.
select queue, sum(counted.runs)::bigint as runs, sum(ran_us)::float8 / 1000000 as seconds
from mainspring.rollups
cross join lateral (select coalesce(sum(n), 0) as runs from unnest(ran) as n) as counted
where span = $1 and at >= $3 and tenant_id = $2 and task = '' and queue <> ''
group by queue
having sum(counted.runs) > 0

-- name: ended_in_minute
-- How many runs of all tenants ended in the minute $1.
select coalesce(sum(succeeded + failed + cancelled + skipped), 0)::bigint
from mainspring.rollups
where span = {{MINUTE}} and at = $1 and task = '' and queue = ''
