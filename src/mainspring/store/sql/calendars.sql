-- Calendars, the jobs that use them, and the recomputation of their next fires.

-- name: get_calendar
select {{calendar_columns}}
from mainspring.calendars c
where c.tenant_id = $1 and c.name = $2

-- name: list_calendars
-- By name, after $2.
select {{calendar_columns}}
from mainspring.calendars c
where c.tenant_id = $1 and ($2::text is null or c.name > $2)
order by c.name
limit $3

-- name: calendar_names
select c.name from mainspring.calendars c where c.tenant_id = $1 order by c.name limit $2

-- name: count_calendars
select count(*)::int from mainspring.calendars where tenant_id = $1

-- name: lock_calendar
-- Whoever changes or deletes a calendar. It waits for those who store jobs that use it.
select {{calendar_columns}}
from mainspring.calendars c
where c.tenant_id = $1 and c.name = $2
for update

-- name: share_calendars
-- Whoever stores jobs that use these calendars: until the end of the transaction they are neither changed nor deleted.
select {{calendar_columns}}
from mainspring.calendars c
where c.tenant_id = $1 and c.name = any ($2::text[])
order by c.name
for key share

-- name: insert_calendar
-- Numbers go on after a calendar of the same name that was deleted.
-- unguarded: insert if absent.
insert into mainspring.calendars (tenant_id, name, version, rules_version, digest, rules, description, updated_by)
select $1, $2, v.version, v.version, $3, $4::json, $5, $6
from (select coalesce(max(version), 0) + 1 as version
      from mainspring.calendar_versions where tenant_id = $1 and name = $2) as v
on conflict do nothing
returning version

-- name: change_calendar
-- $8: the rules have changed.
-- guard: version; the caller has locked the row.
update mainspring.calendars
set version = version + 1, rules_version = case when $8 then version + 1 else rules_version end, digest = $4,
    rules = $5::json, description = $6, updated_at = (select clock_timestamp()), updated_by = $7,
    pending = pending or $8, recomputed = case when $8 then 0 else recomputed end
where tenant_id = $1 and name = $2 and version = $3
returning version

-- name: insert_calendar_version
-- unguarded: append-only; in the transaction that has locked or inserted the calendar.
insert into mainspring.calendar_versions (tenant_id, name, version, digest, rules, created_by)
values ($1, $2, $3, $4, $5::json, $6)

-- name: delete_calendar
-- guard: version; the caller has locked the row and seen that no job uses it.
delete from mainspring.calendars where tenant_id = $1 and name = $2 and version = $3
returning version

-- name: use_of_calendar
-- How many jobs use it, and how many of them by rules before version $3. Each is a range of the index.
select (select count(*) from mainspring.jobs j where {{job_in_calendar($1, $2)}})::int as jobs,
       (select count(*) from mainspring.jobs j
        where {{job_in_calendar($1, $2)}} and (j.schedule ->> 'calendar_version')::int < $3)::int as pending

-- name: users_of_calendar
-- In the order of the index.
select j.job_id
from mainspring.jobs j
where {{job_in_calendar($1, $2)}}
order by (j.schedule ->> 'calendar_version')::int, j.job_id
limit $3

-- name: rules_by_digest
select distinct on (v.digest) v.rules::text as rules_text
from mainspring.calendar_versions v
where v.tenant_id = $1 and v.digest = any ($2::text[])

-- name: is_pending
-- Whether a job uses it by rules before version $3.
select exists (select from mainspring.jobs j
               where {{job_in_calendar($1, $2)}} and (j.schedule ->> 'calendar_version')::int < $3)
    or exists (select from mainspring.jobs j
               where {{completed_in_calendar($1, $2)}} and (j.schedule ->> 'calendar_version')::int < $3)

-- name: pending_calendars
select c.tenant_id, c.name from mainspring.calendars c where c.pending order by c.tenant_id, c.name limit 100

-- name: pending_calendar
-- The first of them that nobody else works on.
select {{calendar_columns}}
from mainspring.calendars c
where c.tenant_id = $1 and c.name = $2 and c.pending
for no key update skip locked

-- name: jobs_to_recompute
-- A slice of the jobs whose next fire was decided by rules before version $3, after ($4, $5).
select {{recomputed_columns}}
from mainspring.jobs j
where {{job_in_calendar($1, $2)}}
  and (j.schedule ->> 'calendar_version')::int < $3
  and ((j.schedule ->> 'calendar_version')::int, j.job_id) > ($4::int, $5::text)
order by (j.schedule ->> 'calendar_version')::int, j.job_id
limit $6

-- name: completed_to_recompute
-- The same of jobs that are COMPLETED.
select {{recomputed_columns}}
from mainspring.jobs j
where {{completed_in_calendar($1, $2)}}
  and (j.schedule ->> 'calendar_version')::int < $3
  and ((j.schedule ->> 'calendar_version')::int, j.job_id) > ($4::int, $5::text)
order by (j.schedule ->> 'calendar_version')::int, j.job_id
limit $6

-- name: write_recomputed
-- What is due by now is not touched: it fires by the old rules, and is found again. A row that somebody has locked is too.
-- The version rises, so that a fire that was prepared before fails. Without a next fire a job is COMPLETED; with one it
-- no longer is.
-- guard: version, next fire and what a pause holds back, under the row's lock; it has not come yet.
with locked as materialized (
    select j.tenant_id, j.job_id, n.next_fire_at, n.paused_from, n.schedule
    from unnest($1::int[], $2::text[], $3::int[], $4::timestamptz[], $5::timestamptz[], $6::timestamptz[],
                $7::timestamptz[], $8::text[])
         as n (tenant_id, job_id, version, old_next, old_paused, next_fire_at, paused_from, schedule)
    join mainspring.jobs j on j.tenant_id = n.tenant_id and j.job_id = n.job_id
    where j.version = n.version and j.status in ({{JOB_SCHEDULED}}, {{JOB_PAUSED}}, {{JOB_COMPLETED}})
      and j.next_fire_at is not distinct from n.old_next and j.paused_from is not distinct from n.old_paused
      and coalesce(j.next_fire_at, j.paused_from, 'infinity') > (select clock_timestamp())
    order by j.tenant_id, j.job_id
    for no key update of j skip locked
)
update mainspring.jobs j
set next_fire_at = l.next_fire_at, paused_from = l.paused_from, schedule = l.schedule::json, version = j.version + 1,
    status = case when j.status = {{JOB_PAUSED}} then j.status
                  when l.next_fire_at is null then {{JOB_COMPLETED}} else {{JOB_SCHEDULED}} end,
    pruned_version = case when j.pruned_version = j.version then j.version + 1 end
from locked l
where j.tenant_id = l.tenant_id and j.job_id = l.job_id
returning j.tenant_id, j.job_id

-- name: note_recomputed
-- $3: how many more have been brought to the current rules. $4: none is left.
-- guard: the caller has locked the row.
update mainspring.calendars
set recomputed = recomputed + $3, pending = pending and not $4
where tenant_id = $1 and name = $2

-- name: get_libraries
select tzdata, holidays, walking, after_tenant, after_job, recomputed from mainspring.schedule_libraries

-- name: first_libraries
-- unguarded: insert if absent.
insert into mainspring.schedule_libraries (tzdata, holidays) values ($1, $2)
on conflict do nothing

-- name: begin_walk
-- Other versions decide from now on: every job is looked at again, from the first one.
-- guard: the versions that the caller has read.
update mainspring.schedule_libraries
set tzdata = $3, holidays = $4, walking = true, after_tenant = 0, after_job = '', recomputed = 0,
    updated_at = (select clock_timestamp())
where tzdata = $1 and holidays = $2

-- name: lock_walk
select tzdata, holidays, walking, after_tenant, after_job, recomputed
from mainspring.schedule_libraries
where walking
for no key update skip locked

-- name: jobs_on_walk
-- The next $3 jobs after ($1, $2): which of them recur in a zone or a calendar.
select {{recomputed_columns}}
from mainspring.jobs j
where (j.tenant_id, j.job_id) > ($1::int, $2::text)
order by j.tenant_id, j.job_id
limit $3

-- name: go_on
-- guard: the caller has locked the row.
update mainspring.schedule_libraries
set after_tenant = $1, after_job = $2, recomputed = recomputed + $3, walking = not $4
where walking
