-- Sources: what connectors read from brokers. The offset of a partition, or the ids of messages, are stored in the
-- transaction of the events and jobs.

-- name: known_messages
select m.message_id
from mainspring.source_messages m
where m.tenant_id = $1 and m.source = $2 and m.message_id = any($3::text[])

-- name: offset_of_source
select s.stored_offset from mainspring.sources s where s.tenant_id = $1 and s.name = $2 and s.part = $3

-- name: count_sources
select count(*)::int from mainspring.sources where tenant_id = $1

-- name: add_source
-- unguarded: insert if absent.
insert into mainspring.sources (tenant_id, name, part, kind)
values ($1, $2, $3, $4)
on conflict do nothing
returning name

-- name: lock_source
select s.stored_offset
from mainspring.sources s
where s.tenant_id = $1 and s.name = $2 and s.part = $3
for update

-- name: move_source
-- guard: the stored offset; the caller has locked the row. Without a new offset the old one stays.
update mainspring.sources s
set stored_offset = coalesce($5::bigint, s.stored_offset), kind = $6, connector = $7,
    taken = s.taken + $8, repeated = s.repeated + $9, dead = s.dead + $10,
    lag = coalesce($11::bigint, s.lag), problem = $12::text,
    problems = s.problems + case when $12::text is null then 0 else 1 end,
    problem_at = case when $12::text is null then s.problem_at else t.now end,
    taken_at = case when $8 + $9 + $10 = 0 then s.taken_at else t.now end, seen_at = t.now
from (select clock_timestamp() as now) as t
where s.tenant_id = $1 and s.name = $2 and s.part = $3 and s.stored_offset is not distinct from $4
returning s.stored_offset

-- name: take_messages
-- In one order, so that two connectors do not wait for each other.
-- unguarded: insert if absent; the caller compares how many were absent.
insert into mainspring.source_messages (tenant_id, source, message_id)
select $1, $2, m.message_id
from unnest($3::text[]) as m (message_id)
order by m.message_id
on conflict do nothing
returning message_id

-- name: settle_messages
-- guard: it is not settled.
update mainspring.source_messages m
set settled = true
where m.tenant_id = $1 and m.source = $2 and m.message_id = any($3::text[]) and not m.settled
returning m.message_id

-- name: insert_dead_messages
-- The newest $7 of the source are kept.
-- unguarded: the caller has locked the source.
with old as (
    delete from mainspring.source_dead_messages d
    where d.tenant_id = $1 and d.source = $2
      and d.seq <= (select o.seq from mainspring.source_dead_messages o
                    where o.tenant_id = $1 and o.source = $2
                    order by o.seq desc
                    offset greatest($7::int - cardinality($4::text[]), 0) limit 1)
)
insert into mainspring.source_dead_messages (tenant_id, source, part, message_id, reason, value)
select $1, $2, $3, d.message_id, d.reason, d.value
from unnest($4::text[], $5::text[], $6::text[]) with ordinality as d (message_id, reason, value, position)
order by d.position

-- name: list_sources
select s.name, s.part, s.kind, s.stored_offset, s.taken, s.repeated, s.dead, s.problems, s.lag, s.connector, s.problem,
       s.problem_at, s.taken_at, s.seen_at
from mainspring.sources s
where s.tenant_id = $1 and ($2::text is null or (s.name, s.part) > ($2, $3))
order by s.name, s.part
limit $4

-- name: list_dead_messages
-- Newest first.
select d.seq, d.part, d.message_id, d.at, d.reason, d.value
from mainspring.source_dead_messages d
where d.tenant_id = $1 and d.source = $2 and ($3::bigint is null or d.seq < $3)
order by d.seq desc
limit $4

-- name: delete_source
-- guard: none is needed: the rows of the source that exist. The caller reads what they were.
with messages as (
    delete from mainspring.source_messages where tenant_id = $1 and source = $2
), dead_messages as (
    delete from mainspring.source_dead_messages where tenant_id = $1 and source = $2
)
delete from mainspring.sources
where tenant_id = $1 and name = $2
returning part, kind, stored_offset

-- name: prune_messages
-- guard: it is settled, and older.
with old as materialized (
    select m.tenant_id, m.source, m.message_id
    from mainspring.source_messages m
    where m.settled and m.taken_at < (select clock_timestamp()) - $1 * interval '1 day'
    order by m.taken_at
    limit $2
)
delete from mainspring.source_messages m
using old
where m.tenant_id = old.tenant_id and m.source = old.source and m.message_id = old.message_id and m.settled
returning m.message_id
