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

-- name: missed_page
-- The same, page by page.
select missed_id, first_at, last_at, count, reason, recorded_at, generation
from mainspring.missed_fires
where tenant_id = $1 and job_id = $2 and ($3::bigint is null or missed_id < $3)
order by missed_id desc
limit $4

-- name: missed_of_tenant
-- The missed fires of all jobs, newest first, before $2.
select m.missed_id, m.job_id, j.name, m.first_at, m.last_at, m.count, m.reason, m.recorded_at, m.generation
from mainspring.missed_fires m
left join mainspring.jobs j on j.tenant_id = m.tenant_id and j.job_id = m.job_id
where m.tenant_id = $1 and ($2::bigint is null or m.missed_id < $2) and ($3::text is null or m.job_id = $3)
  and ($4::text is null or m.reason = $4)
order by m.missed_id desc
limit $5
