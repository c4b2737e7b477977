-- The output of attempts that is stored in PostgreSQL. run_logs says how much of each log counts.

-- name: read_chunks
-- The chunks of a log from the one that contains the byte $4 on, up to those that begin before $5. None if the byte is
-- not there. $7 and $8: when they were stored. Other partitions are not looked into.
select c.first_byte, c.size, c.data
from mainspring.log_chunks c
where c.run_id = $1 and c.fence = $2 and c.tenant_id = $3 and c.first_byte < $5
  and c.stored_at >= $7 and c.stored_at < $8
  and c.first_byte >= (
      select b.first_byte
      from mainspring.log_chunks b
      where b.run_id = $1 and b.fence = $2 and b.tenant_id = $3
        and b.first_byte between $4 - {{MAX_LOG_CHUNK}} and $4 and b.first_byte + b.size > $4
        and b.stored_at >= $7 and b.stored_at < $8
      order by b.first_byte desc
      limit 1
  )
order by c.first_byte
limit $6

-- name: keep_chunks
-- Before the partition of a day is dropped: copy the output of runs that are still known. They began on that day or
-- before, and ended days later. The logs of all others have been forgotten.
-- unguarded: the bytes of a log do not change, and those that were copied already are left out.
insert into mainspring.log_chunks (run_id, stored_at, first_byte, tenant_id, fence, size, data, words, lane_id)
select c.run_id, (select clock_timestamp()), c.first_byte, c.tenant_id, c.fence, c.size, c.data, c.words, c.lane_id
from mainspring.run_logs g
join mainspring.log_chunks c on c.run_id = g.run_id and c.fence = g.fence
where g.created_at < $2::timestamptz + interval '1 hour' and c.stored_at >= $1 and c.stored_at < $2
  and not exists (
      select from mainspring.log_chunks k
      where k.run_id = c.run_id and k.fence = c.fence and k.first_byte = c.first_byte and k.size >= c.size
        and k.stored_at >= $2
  )
