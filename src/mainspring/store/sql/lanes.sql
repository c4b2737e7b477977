-- Lanes: interned, never deleted.

-- name: all_lanes
select lane_id, tenant_id, queue, priority, task from mainspring.lanes where lane_id > $1 order by lane_id

-- name: intern
-- Get-or-insert in two statements: the loser of a race reads what the winner wrote.
-- unguarded: insert if absent.
insert into mainspring.lanes (tenant_id, queue, priority, task)
values ($1, $2, $3, $4)
on conflict do nothing

-- name: find
select lane_id from mainspring.lanes
where tenant_id = $1 and queue = $2 and priority = $3 and task = $4 and labels = ''
