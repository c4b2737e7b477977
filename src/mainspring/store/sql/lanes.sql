-- Lanes: interned, never deleted.

-- name: all_lanes
select lane_id, tenant_id, queue, priority, task, labels from mainspring.lanes where lane_id > $1 order by lane_id

-- name: intern
-- Get-or-insert in two statements, so that the loser of a race reads the row of the winner. Only one transaction at a
-- time inserts, and the id is assigned after the lock. So lanes are committed in the order of their ids, and a process
-- that reads all lanes after the last known id does not miss any.
-- unguarded: insert if absent.
with turn as materialized (
    select pg_advisory_xact_lock({{lock_key('lanes')}})
)
insert into mainspring.lanes (tenant_id, queue, priority, task, labels)
select $1, $2, $3, $4, $5 from turn
on conflict do nothing

-- name: find
select lane_id from mainspring.lanes
where tenant_id = $1 and queue = $2 and priority = $3 and task = $4 and labels = $5
