-- stage: pre

-- The words of the chunks that were stored from stored_from on and before stored_to: a row for each first byte of a word
-- (domain/log_blocks.py) with the other two bytes of each. A search reads the rows of its words and leaves out the chunks
-- of all other blocks. unknown: some of the chunks may contain any word. first_run: no chunk has a smaller run_id.
create table mainspring.log_blocks (
    first_byte  smallint not null,
    stored_from timestamptz not null,
    stored_to   timestamptz not null,
    first_run   uuid not null,
    chunks      int not null,
    unknown     boolean not null,
    words       bytea not null
) partition by range (stored_to);
alter table mainspring.log_blocks alter column words set storage external;
create unique index log_blocks_by_word on mainspring.log_blocks (first_byte, stored_to);

-- To find the chunks of a time. Partitions get it while they are empty: that of today would have to be read as a whole,
-- and output would wait.
create index log_chunks_by_time on only mainspring.log_chunks
    using brin (stored_at) with (pages_per_range = 32, autosummarize = on);
do $$
declare
    part record;
begin
    for part in
        select c.relname
        from pg_inherits i join pg_class c on c.oid = i.inhrelid
        where i.inhparent = 'mainspring.log_chunks'::regclass and c.relname ~ '^log_chunks_[0-9]{8}$'
          and to_date(right(c.relname, 8), 'YYYYMMDD') > ((select clock_timestamp()) at time zone 'UTC')::date
    loop
        execute format('create index on mainspring.%I using brin (stored_at)'
                       ' with (pages_per_range = 32, autosummarize = on)', part.relname);
        execute format('alter index mainspring.log_chunks_by_time attach partition mainspring.%I',
            (select x.relname from pg_index k join pg_class x on x.oid = k.indexrelid join pg_am a on a.oid = x.relam
             where k.indrelid = ('mainspring.' || quote_ident(part.relname))::regclass and a.amname = 'brin'));
    end loop;
end $$;
