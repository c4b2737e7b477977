-- Fires that were missed.

-- name: missed_of_tenant
-- The missed fires of all jobs, newest first, before $2.
select m.missed_id, m.job_id, j.name, m.first_at, m.last_at, m.count, m.reason, m.recorded_at, m.generation
from mainspring.missed_fires m
left join mainspring.jobs j on j.tenant_id = m.tenant_id and j.job_id = m.job_id
where m.tenant_id = $1 and ($2::bigint is null or m.missed_id < $2) and ($3::text is null or m.job_id = $3)
  and ($4::text is null or m.reason = $4)
order by m.missed_id desc
limit $5
