-- Searches the output of many runs, the newest run first.

-- name: indexed_runs
-- The runs of a stretch of chunks whose words ($7) and lanes ($6) fit, newest first, and the last run of the stretch; null if
-- there are no older chunks. The stretch has chunks of all tenants, so that it ends after $8 of them, and all chunks of its
-- last run. Its end is found first, by the index alone where the table is vacuumed, so that of all other chunks only those
-- that fit leave the scan. $3 and $4: when the output was stored; $5 is the beginning of the first day, which says what
-- partitions to read.
with last as materialized (
    select c.run_id
    from mainspring.log_chunks c
    where ($2::uuid is null or c.run_id < $2) and c.stored_at >= $5
    order by c.run_id desc
    offset $8 - 1
    limit 1
)
select found.run_id, whole.last
from (select (select l.run_id from last l) as last) as whole
left join (
    select distinct c.run_id
    from mainspring.log_chunks c
    where ($2::uuid is null or c.run_id < $2) and c.stored_at >= $5
      and c.run_id >= coalesce((select l.run_id from last l), '00000000-0000-0000-0000-000000000000')
      and {{fitting_chunk}}
) as found on true
order by found.run_id desc

-- name: runs_of_times
-- The runs that have chunks of these times ($9 to $10) whose words and lanes fit, newest first. The parameters up to $7 are
-- those of `indexed_runs`; $8: runs after this one. Some of these have an id that says nothing about their time, and output
-- from before the first block ($11).
select found.run_id
from unnest($9::timestamptz[], $10::timestamptz[]) as b (stored_from, stored_to)
cross join lateral (
    select c.run_id
    from mainspring.log_chunks c
    where c.stored_at >= b.stored_from and c.stored_at < b.stored_to and c.stored_at >= $5
      and ($2::uuid is null or c.run_id < $2) and ($8::uuid is null or c.run_id > $8)
      and {{fitting_chunk}}
    offset 0
) as found
union
select c.run_id
from mainspring.log_chunks c
where $8::uuid is not null and c.run_id > $8 and c.stored_at < $11 and c.stored_at >= $5
  and ($2::uuid is null or c.run_id < $2) and {{fitting_chunk}}
order by run_id desc

-- name: printing_runs
-- As `indexed_runs`, without an index: runs whose output may be in a folder or object store. The last run of the stretch
-- is one of them.
with stretch as materialized (
    select g.run_id, g.tenant_id = $1 and g.updated_at >= $3 and g.created_at < $4 as fits
    from mainspring.run_logs g
    where ($2::uuid is null or g.run_id < $2)
    order by g.run_id desc
    limit $5
), last as (
    select s.run_id from stretch s order by s.run_id limit 1
)
select found.run_id, (select count(*) from stretch)::int as looked
from (select s.run_id from stretch s where s.fits union select l.run_id from last l) as found
order by found.run_id desc

-- name: live_runs_among
-- Those of the runs $18 that a list with these filters shows.
select {{live_run_columns}}
from mainspring.runs r
where {{wanted_live_run}}
  and r.run_id = any ($18::uuid[])

-- name: ended_runs_among
-- None of them has ended before $19, which says what partitions to read.
select {{ended_run_columns}}
from mainspring.run_history h
where {{wanted_ended_run}}
  and h.run_id = any ($18::uuid[]) and h.ended_at >= $19

-- name: logs_of_runs
-- The logs of runs that had output from $3 on and before $4; of each run, the newest attempt first.
select g.run_id, g.attempt, g.fence, g.bytes, g.truncated, g.ended, g.created_at
from mainspring.run_logs g
where g.tenant_id = $1 and g.run_id = any ($2::uuid[]) and g.bytes > 0 and g.updated_at >= $3 and g.created_at < $4
order by g.run_id desc, g.fence desc

-- name: chunks_of_logs
-- All chunks of small logs, stored since $4.
select c.run_id, c.fence, c.first_byte, c.size, c.data
from unnest($2::uuid[], $3::int[]) as w (run_id, fence)
join mainspring.log_chunks c on c.run_id = w.run_id and c.fence = w.fence
where c.tenant_id = $1 and c.stored_at >= $4
order by c.run_id, c.fence, c.first_byte
