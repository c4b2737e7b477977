-- Limits as people see and set them.

-- name: list_limits
-- By name, after $2, those whose name is like $3.
select {{limit_columns}}
from (select l.*
      from mainspring.limits l
      where l.tenant_id = $1 and ($2::text is null or l.name > $2) and ($3::text is null or l.name ilike $3)
      order by l.name
      limit $4) as l
cross join lateral ({{use_of_limit}}) as u
order by l.name

-- name: get_limit
select {{limit_columns}}
from mainspring.limits l
cross join lateral ({{use_of_limit}}) as u
where l.tenant_id = $1 and l.limit_id = $2

-- name: limit_lines
-- The lines of a limit, those with most to do first.
select k.key_id, k.key, k.in_use, h.held
from mainspring.limit_keys k
cross join lateral ({{held_in_line(k.key_id)}}) as h
where k.limit_id = $1
order by h.held desc, k.in_use desc, k.key
limit $2

-- name: lines_by_id
-- Lines and their limits. Of a strict line also the run that keeps all others back: it backs off, or waits in another line.
select k.key_id, l.limit_id, l.name, k.key, k.in_use, l.slots, l.every, l.burst, k.failed, k.opened_at, k.next_at, k.probe,
       case when l.strict then coalesce(mainspring.first_elsewhere(k.key_id, o.fresh, o.submitted_at),
                                        case when o.wake_at is not null then o.run_id end) end as kept_back_by
from mainspring.limit_keys k
join mainspring.limits l on l.limit_id = k.limit_id
left join lateral ({{first_in_order(k.key_id)}}) as o on l.strict
where k.key_id = any ($1::bigint[])

-- name: holders
-- The runs that own a slot of these lines, at most $3 of each, oldest first. One part for each state, because an index
-- has the runs of each.
select h.key_id, h.run_id, h.job_id, h.name, h.lane_id
from (select o.*, row_number() over (partition by o.key_id order by o.run_id) as place
      from ({{owners}} and r.state = {{RUNNING}}
            union all
            {{owners}} and r.state = {{QUEUED}}) as o) as h
where h.place <= $3
order by h.key_id, h.run_id

-- name: place_in_line
-- How many runs stand before this one. In a strict line those that back off do too.
select case when l.strict then (select count(*)
                                from mainspring.runs b
                                where b.held_key = r.held_key and b.state = {{HELD}}
                                  and ({{submitted_at(b)}}, b.run_id) < ({{submitted_at(r)}}, r.run_id))
            else (select count(*)
                  from mainspring.runs b
                  where b.held_key = r.held_key and b.state = {{HELD}} and b.wake_at is null
                    and (b.held_rank, b.run_id) < (r.held_rank, r.run_id)) end::int
from mainspring.runs r
left join mainspring.limit_keys k on k.key_id = r.held_key
left join mainspring.limits l on l.limit_id = k.limit_id
where r.run_id = $1 and r.held_key is not null and r.state + 0 = {{HELD}}

-- name: lock_limit
select l.limit_id, l.name, l.slots, l.strict, l.pinned, l.declared
from mainspring.limits l
where l.tenant_id = $1 and l.limit_id = $2
for no key update

-- name: set_limit
-- $2: null returns to what is declared. $3: strict order ends.
-- guard: the caller has locked the row.
update mainspring.limits
set slots = coalesce($2, declared), pinned = $2::int is not null, strict = strict and not $3::boolean,
    updated_at = (select clock_timestamp())
where limit_id = $1

-- name: lines_that_wait
-- Lines of a limit in which runs are HELD, at most $2.
select k.key_id
from mainspring.limit_keys k
where k.limit_id = $1
  and exists (select from mainspring.runs r
              where r.held_key = k.key_id and r.state = {{HELD}} and r.wake_at is null offset 0)
limit $2

-- name: admissions_under_way
-- The transactions that have locked lines or are about to. One that begins later sees what is committed now.
select distinct virtualtransaction
from pg_locks
where locktype = 'relation' and database = (select oid from pg_database where datname = current_database())
  and relation = 'mainspring.limit_keys'::regclass and mode in ('RowShareLock', 'RowExclusiveLock')
  and pid <> pg_backend_pid()
