-- Blocks of chunks of output, which say together what words they have.

-- name: log_blocks_lock
-- One server at a time makes blocks. Until the end of the transaction.
select pg_try_advisory_xact_lock({{lock_key('log_blocks')}})

-- name: log_writers_since
-- The oldest transaction that has begun to write output and has not ended, as `writers_since` of the rollups.
select min(s.xact_start) as since, coalesce(bool_or(s.query = '<insufficient privilege>'), false) as hidden
from pg_locks l
join pg_stat_activity s on s.pid = l.pid
where l.locktype = 'relation' and l.mode = 'RowExclusiveLock'
  and l.database = (select oid from pg_database where datname = current_database())
  and l.relation = 'mainspring.log_chunks'::regclass

-- name: log_blocks_span
-- What blocks have: from the first one to the last one. Chunks of between are in one of them.
select (select b.stored_from from mainspring.log_blocks b where b.first_byte = 0 order by b.stored_to limit 1),
       (select b.stored_to from mainspring.log_blocks b where b.first_byte = 0 order by b.stored_to desc limit 1)

-- name: first_indexed_day
-- The first day whose chunks have an index of their times. Chunks of days before it get no blocks.
select to_date(min(right(t.relname, 8)), 'YYYYMMDD')::timestamp at time zone 'UTC'
from pg_inherits i
join pg_index x on x.indexrelid = i.inhrelid
join pg_class t on t.oid = x.indrelid
where i.inhparent = 'mainspring.log_chunks_by_time'::regclass and t.relname ~ '_[0-9]{8}$'

-- name: chunks_between
-- How many chunks were stored from $1 on and before $2, and how many words they have.
select count(*) as chunks, coalesce(sum(octet_length(c.words)), 0)::bigint / 3 as words
from mainspring.log_chunks c
where c.stored_at >= $1 and c.stored_at < $2

-- name: words_between
select c.stored_at, c.run_id, c.words
from mainspring.log_chunks c
where c.stored_at >= $1 and c.stored_at < $2
order by c.stored_at

-- name: add_block
-- guard: the key; the caller has the lock, and has read the end of the last block under it.
insert into mainspring.log_blocks (first_byte, stored_from, stored_to, first_run, chunks, unknown, words)
select w.place - 1, $1, $2, $3, $4, $5, w.words
from unnest($6::bytea[]) with ordinality as w (words, place)

-- name: forget_blocks_since
-- guard: the caller has the lock.
delete from mainspring.log_blocks where stored_to > $1

-- name: blocks_with_words
-- The times of the blocks that have all of these words ($1 and $2), with output of $3 to $4 and a run before $5.
select b.stored_from, b.stored_to, b.chunks
from unnest($1::smallint[], $2::bytea[]) as w (first_byte, rest)
join mainspring.log_blocks b on b.first_byte = w.first_byte
where b.stored_to > $3 and b.stored_from < $4 and ($5::uuid is null or b.first_run < $5)
group by b.stored_from, b.stored_to, b.chunks
having bool_and(b.unknown or position(w.rest in b.words) > 0)

-- name: stored_before
-- Whether there is a chunk of $1 or later, and before $2.
select exists (select from mainspring.log_chunks c where c.stored_at >= $1 and c.stored_at < $2)
