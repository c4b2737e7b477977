-- Fires that were missed.

-- name: insert_missed
-- unguarded: append-only; in the transaction that has locked the job's row.
insert into mainspring.missed_fires (tenant_id, job_id, generation, first_at, last_at, count, reason)
values ($1, $2, $3, $4, $5, $6, $7)

-- name: list_missed
select first_at, last_at, count, reason, recorded_at, generation
from mainspring.missed_fires
where tenant_id = $1 and job_id = $2
order by missed_id desc
limit $3

-- name: missed_at
-- The newest range that contains a time from $3 to $4.
select first_at, last_at, count, reason, recorded_at, generation
from mainspring.missed_fires
where tenant_id = $1 and job_id = $2 and first_at <= $4 and last_at >= $3
order by missed_id desc
limit 1

-- name: missed_page
-- The same, page by page.
select first_at, last_at, count, reason, recorded_at, generation, missed_id
from mainspring.missed_fires
where tenant_id = $1 and job_id = $2 and ($3::bigint is null or missed_id < $3)
order by missed_id desc
limit $4

-- name: missed_of_tenant
-- The missed fires of all jobs, newest first, before $2 and from $7 on. $6: a part of the job's name or id, in lower case.
-- `backfills`: those that were not cancelled and cover some of the fires.
select page.*, array(select b.backfill_id
                     from mainspring.backfills b
                     where b.tenant_id = $1 and b.job_id = page.job_id and b.generation = page.generation
                       and b.state <> {{BACKFILL_CANCELLED}} and b.from_at <= page.last_at and b.to_at > page.first_at
                     order by b.backfill_id desc
                     limit 10) as backfills
from (select m.first_at, m.last_at, m.count, m.reason, m.recorded_at, m.generation, m.missed_id, m.job_id, j.name
      from mainspring.missed_fires m
      left join mainspring.jobs j on j.tenant_id = m.tenant_id and j.job_id = m.job_id
      where m.tenant_id = $1 and ($2::bigint is null or m.missed_id < $2) and ($7::bigint is null or m.missed_id >= $7)
        and ($3::text is null or m.job_id = $3) and ($4::text is null or m.reason = $4)
        and ($6::text is null or strpos(lower(m.job_id), $6) > 0 or strpos(lower(j.name), $6) > 0)
      order by m.missed_id desc
      limit $5) as page
order by page.missed_id desc

-- name: missed_boundary
-- The end of a stretch of $3 ranges before $2. None: there are not so many.
select missed_id, recorded_at
from mainspring.missed_fires
where tenant_id = $1 and ($2::bigint is null or missed_id < $2)
order by missed_id desc
offset $3 - 1
limit 1
