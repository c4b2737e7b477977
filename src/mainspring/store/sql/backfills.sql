-- Backfills. Locks are taken in this order: the job, its backfills by id, its runs. Who takes a slice locks no job.

-- name: insert_backfill
-- unguarded: the id is new. The caller has locked the job.
insert into mainspring.backfills
    (backfill_id, tenant_id, job_id, generation, state, from_at, to_at, newest_first, concurrency, total, fire_cursor,
     schedule)
values ($1, $2, $3, $4, {{BACKFILL_RUNNING}}, $5, $6, $7, $8, $9, $10, $11)

-- name: get_backfill
select {{backfill_columns}}
from mainspring.backfills b
left join mainspring.jobs j on j.tenant_id = b.tenant_id and j.job_id = b.job_id and j.generation = b.generation
where b.tenant_id = $1 and b.backfill_id = $2

-- name: list_backfills
-- Newest first.
select {{backfill_columns}}
from mainspring.backfills b
left join mainspring.jobs j on j.tenant_id = b.tenant_id and j.job_id = b.job_id and j.generation = b.generation
where b.tenant_id = $1 and ($2::uuid is null or b.backfill_id < $2) and ($3::text is null or b.job_id = $3)
  and ($4::int[] is null or {{shown_backfill_state}} = any ($4))
order by b.backfill_id desc
limit $5

-- name: unfinished_of_job
select count(*)
from mainspring.backfills b
where b.tenant_id = $1 and b.job_id = $2 and b.state in ({{BACKFILL_RUNNING}}, {{BACKFILL_PAUSED}})

-- name: backfills_at_work
-- Those that may create runs, or have some that had not ended, after $1.
select b.backfill_id, b.tenant_id, b.job_id
from mainspring.backfills b
where (b.state = {{BACKFILL_RUNNING}} or b.live <> '{}') and b.backfill_id > $1
order by b.backfill_id
limit $2

-- name: backfills_of_runs
-- The backfills of these runs, and those of the same jobs that wait for their turn.
select w.backfill_id, w.tenant_id, w.job_id
from mainspring.backfills b
join mainspring.backfills w on w.tenant_id = b.tenant_id and w.job_id = b.job_id
                           and (w.state = {{BACKFILL_RUNNING}} or w.live <> '{}')
where (b.state = {{BACKFILL_RUNNING}} or b.live <> '{}') and b.live && $1::uuid[]
group by w.backfill_id
order by w.backfill_id

-- name: lock_backfill
-- With at most $3 fires of its slice. `first_of_job`: no earlier backfill of the job has fires left.
select b.backfill_id, b.tenant_id, b.job_id, b.generation, b.state, b.from_at, b.to_at, b.newest_first, b.concurrency,
       b.total, b.created, b.existing, b.succeeded, b.failed, b.cancelled, b.skipped, b.fire_cursor,
       b.slice is not null as has_slice, b.slice[b.slice_done + 1 : b.slice_done + $3] as next_fires,
       b.slice_exists[b.slice_done + 1 : b.slice_done + $3] as next_exist,
       coalesce(cardinality(b.slice), 0) as slice_length, b.slice_done, b.slice_end, b.live, b.reason, b.created_at,
       case when b.schedule -> 'jitter' is not null then b.schedule::text end as jittered_text,
       not exists (select from mainspring.backfills o
                   where o.tenant_id = b.tenant_id and o.job_id = b.job_id and o.backfill_id < b.backfill_id
                     and o.state = {{BACKFILL_RUNNING}} and {{has_fires_left(o)}}) as first_of_job
from mainspring.backfills b
where b.tenant_id = $1 and b.backfill_id = $2
for no key update of b

-- name: lock_backfills_of_job
-- Those of the job that have not ended, by id.
select b.backfill_id
from mainspring.backfills b
where b.tenant_id = $1 and b.job_id = $2 and b.state in ({{BACKFILL_RUNNING}}, {{BACKFILL_PAUSED}})
order by b.backfill_id
for no key update of b

-- name: wants_slice
-- What the next slice needs, without a lock.
select b.schedule::text as schedule_text, b.from_at, b.to_at, b.fire_cursor, b.newest_first
from mainspring.backfills b
where b.tenant_id = $1 and b.backfill_id = $2 and b.state = {{BACKFILL_RUNNING}} and b.slice is null

-- name: job_is_past
-- Whether the schedule of the job creates no run for a time before the end of the backfill any more. It never moves back.
select (j.next_fire_at is null or j.next_fire_at >= b.to_at) and j.status not in ({{JOB_PAUSED}}, {{JOB_CANCELLED}})
from mainspring.backfills b
join mainspring.jobs j on j.tenant_id = b.tenant_id and j.job_id = b.job_id and j.generation = b.generation
where b.tenant_id = $1 and b.backfill_id = $2

-- name: existing_fires
-- The times from $4 to $5 for which the job has a run, live or in the history, whatever became of it: fires, and their nominal
-- times. Manual runs stand for no fire. A run ends after its time, so older partitions are not read. A run is in one of both
-- tables in every snapshot.
select r.scheduled_for, r.nominal_for
from mainspring.runs r
where r.tenant_id = $1 and r.job_id = $2 and r.generation = $3
  and (r.scheduled_for between $4 and $5 or r.nominal_for between $4 and $5)
  and starts_with(r.trigger, 'manual:') is not true
union
select h.scheduled_for, h.nominal_for
from mainspring.run_history h
where h.job_id = $2 and h.tenant_id = $1 and h.generation = $3
  and (h.scheduled_for between $4 and $5 or h.nominal_for between $4 and $5)
  and h.ended_at >= $4::timestamptz - interval '1 day' and starts_with(h.trigger, 'manual:') is not true

-- name: drop_slices
-- Other backfills of the job look again before they continue: this one may create runs for their fires.
-- guard: the caller has locked them.
update mainspring.backfills b
set slice = null, slice_exists = null, slice_done = 0, slice_end = null
where b.tenant_id = $1 and b.job_id = $2 and b.backfill_id <> $3 and b.slice is not null

-- name: take_slice
-- guard: it is running, has no slice, and its cursor is the one from which the slice was computed; locked by the caller.
update mainspring.backfills b
set slice = nullif($4::timestamptz[], '{}'), slice_exists = nullif($5::boolean[], '{}'), slice_done = 0,
    slice_end = case when cardinality($4::timestamptz[]) > 0 then $6::timestamptz end,
    fire_cursor = case when cardinality($4::timestamptz[]) > 0 then b.fire_cursor else $6::timestamptz end
where b.tenant_id = $1 and b.backfill_id = $2 and b.fire_cursor = $3 and b.state = {{BACKFILL_RUNNING}}
  and b.slice is null
returning b.backfill_id

-- name: ends_of_runs
-- Which of the runs $1 are alive, and how the others have ended. $2: none of them ended before.
select l.run_id, r.run_id is not null as alive, h.state
from unnest($1::uuid[]) as l (run_id)
left join mainspring.runs r on r.run_id = l.run_id
left join lateral (select e.state from mainspring.run_history e
                   where e.run_id = l.run_id and e.ended_at >= $2 limit 1) as h on true

-- name: create_backfill_runs
-- Runs of a backfill: $4 with times $5, from the row of the job. $6: its trigger. $7: whether they have another spec ($8). $9:
-- their nominal times, with jitter.
-- The caller has locked the job and the backfill. The overlap rule is not about them.
-- creates: QUEUED, HELD
-- guard: generation and status of the job.
with new_run as materialized (
    select n.run_id, j.tenant_id, j.lane_id, j.max_attempts, j.overlap = {{OVERLAP_SKIP}} as exclusive, n.scheduled_for,
           n.nominal_for, j.job_id, j.generation, $6::text as trigger, j.name, j.payload,
           case when $7 then $8::json else j.spec end as spec, null::uuid as node_id, true as fired, j.created_by
    from mainspring.jobs j
    cross join unnest($4::uuid[], $5::timestamptz[], $9::timestamptz[]) as n (run_id, scheduled_for, nominal_for)
    where j.tenant_id = $1 and j.job_id = $2 and j.generation = $3
      and j.status not in ({{JOB_PAUSED}}, {{JOB_CANCELLED}})
), created as (
    {{create_limited_runs}}
    returning run_id, lane_id, held_key
)
select (select count(*) from created)::int as created,
       (select array_agg(lane_id) from created where held_key is null) as lanes, {{held_of_created}}

-- name: advance_backfill
-- guard: the state and how many fires are dealt with, as the caller has locked it.
update mainspring.backfills b
set state = $5, reason = $6, total = $7, created = $8, existing = $9, succeeded = $10, failed = $11, cancelled = $12,
    skipped = $13, fire_cursor = $14, slice_done = $15, live = $16,
    slice = case when $17 then b.slice end, slice_exists = case when $17 then b.slice_exists end,
    slice_end = case when $17 then b.slice_end end, updated_at = (select clock_timestamp()),
    ended_at = case when $18 then coalesce(b.ended_at, (select clock_timestamp())) end
where b.tenant_id = $1 and b.backfill_id = $2 and b.state = $3 and b.created + b.existing = $4
returning b.backfill_id

-- name: set_concurrency
-- guard: it has not ended.
update mainspring.backfills b
set concurrency = $3, updated_at = (select clock_timestamp())
where b.tenant_id = $1 and b.backfill_id = $2 and b.state in ({{BACKFILL_RUNNING}}, {{BACKFILL_PAUSED}})
returning b.backfill_id

-- name: end_backfills_of_job
-- The job was cancelled. Runs that have not ended are still counted. The rows are locked by id, as everybody does.
-- guard: it has not ended; the caller has locked the job.
with locked as materialized (
    select b.backfill_id
    from mainspring.backfills b
    where b.tenant_id = $1 and b.job_id = $2 and b.state in ({{BACKFILL_RUNNING}}, {{BACKFILL_PAUSED}})
    order by b.backfill_id
    for no key update of b
)
update mainspring.backfills b
set state = {{BACKFILL_CANCELLED}}, reason = $3, slice = null, slice_exists = null, slice_done = 0, slice_end = null,
    updated_at = (select clock_timestamp()), ended_at = case when b.live = '{}' then (select clock_timestamp()) end
from locked l
where b.backfill_id = l.backfill_id and b.state in ({{BACKFILL_RUNNING}}, {{BACKFILL_PAUSED}})
returning b.backfill_id, b.ended_at is not null as ended

-- name: lock_runs_of_backfill
-- Those of the runs $2 that are alive, in key order.
select {{locked_run}}
from mainspring.runs r
where tenant_id = $1 and run_id = any ($2::uuid[])
order by run_id
for no key update

-- name: ranges_of_job
-- What the backfills of a job cover that were not cancelled, newest first.
select b.backfill_id, b.generation, b.from_at, b.to_at
from mainspring.backfills b
where b.tenant_id = $1 and b.job_id = $2 and b.state <> {{BACKFILL_CANCELLED}}
order by b.backfill_id desc
limit $3

-- name: prune_backfills
-- guard: the age is compared again with a row that was changed meanwhile.
delete from mainspring.backfills
where ended_at < (select clock_timestamp()) - $1 * interval '1 day'
  and ctid = any (array(select b.ctid from mainspring.backfills b
                        where b.ended_at < (select clock_timestamp()) - $1 * interval '1 day'
                        limit $2))
