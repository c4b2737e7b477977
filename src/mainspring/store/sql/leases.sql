-- Ownership of shards. A lease gives liveness; the compare-and-set of the fire gives safety.

-- name: node_seen
-- unguarded: a node's own row.
insert into mainspring.nodes (node_id, host, clock_off) values ($1, $2, $3)
on conflict (node_id) do update set seen_at = (select clock_timestamp()), clock_off = excluded.clock_off

-- name: live_nodes
select node_id from mainspring.nodes
where seen_at > (select clock_timestamp()) - $1 * interval '1 second'
order by node_id

-- name: standing
-- How many nodes are live, and how many shards have an owner.
select (select count(*) from mainspring.nodes
        where seen_at > (select clock_timestamp()) - $1 * interval '1 second')::int as nodes,
       (select count(*) from mainspring.shard_leases
        where owner is not null and expires_at > (select clock_timestamp()))::int as held,
       (select clock_timestamp()) as at

-- name: nodes_with_shards
-- The live nodes, and how many shards each owns.
select n.node_id, n.host, n.started_at, n.seen_at,
       (select count(*) from mainspring.shard_leases l
        where l.owner = n.node_id and l.expires_at > (select clock_timestamp()))::int as shards
from mainspring.nodes n
where n.seen_at > (select clock_timestamp()) - $1 * interval '1 second'
order by n.started_at

-- name: forget_node
-- unguarded: a node's own row, or one that has been silent for an hour.
delete from mainspring.nodes
where node_id = $1 or seen_at < (select clock_timestamp()) - interval '1 hour'

-- name: renew
-- guard: owner and epoch and not yet expired; a lease that is not returned is lost.
with mine as (
    select l.shard
    from mainspring.shard_leases l
    join unnest($2::smallint[], $3::bigint[]) as m (shard, epoch) on l.shard = m.shard and l.epoch = m.epoch
    where l.owner = $1 and l.expires_at > (select clock_timestamp())
    order by l.shard
    for no key update of l
)
update mainspring.shard_leases l
set expires_at = (select clock_timestamp()) + $4 * interval '1 second'
from mine
where l.shard = mine.shard
returning l.shard, l.epoch

-- name: take
-- Grants free or expired shards. A row that a fire still holds FOR KEY SHARE is skipped until that fire has ended. So
-- no write under the old epoch can follow the first one under the new epoch. Rules are told of a node that did not give
-- back its shards.
-- guard: free or expired; the epoch rises with every grant. What rules are told is append-only.
with open as (
    select l.shard, l.owner
    from mainspring.shard_leases l
    where l.shard = any ($2::smallint[])
      and (l.owner is null or l.expires_at <= (select clock_timestamp()))
    order by l.shard
    for update skip locked
), taken as (
    update mainspring.shard_leases l
    set owner = $1, epoch = l.epoch + 1, expires_at = (select clock_timestamp()) + $3 * interval '1 second'
    from open
    where l.shard = open.shard
    returning l.shard, l.epoch
), noted as (
    insert into mainspring.notable_events (tenant_id, event, subject, path, reason)
    select r.tenant_id, 'scheduler_failover', 'scheduler ' || coalesce(n.host || ' ', '') || o.owner, '/ui/',
           'it stopped renewing its leases, and another one has taken ' || count(*) || ' of its shards'
    from open o
    join (select distinct tenant_id from mainspring.rules where 'scheduler_failover' = any (events)) as r on true
    left join mainspring.nodes n on n.node_id = o.owner
    where o.owner <> $1
    group by r.tenant_id, n.host, o.owner
)
select shard, epoch from taken

-- name: release
-- guard: owner and epoch.
update mainspring.shard_leases l
set owner = null, expires_at = '-infinity'
from unnest($2::smallint[], $3::bigint[]) as m (shard, epoch)
where l.shard = m.shard and l.owner = $1 and l.epoch = m.epoch
returning l.shard

-- name: list_leases
select shard, owner, epoch, expires_at from mainspring.shard_leases order by shard
