-- stage: pre

-- The output of attempts, if it is stored here: the bytes of one log from `first_byte` on. `size` is their number
-- before compression; if `data` is shorter, it is compressed. Bytes beyond run_logs.bytes do not count. A chunk that
-- was sent twice may be here twice.
create table mainspring.log_chunks (
    run_id     uuid not null,
    stored_at  timestamptz not null default clock_timestamp(),
    first_byte bigint not null,
    tenant_id  int not null,
    fence      int not null,
    size       int not null,
    data       bytea not null
) partition by range (stored_at);
alter table mainspring.log_chunks alter column data set storage external;
create index log_chunks_by_log on mainspring.log_chunks (run_id, fence, first_byte);

-- How many bytes of output each tenant has stored here on a day.
create table mainspring.log_usage (
    day       date not null,
    tenant_id int not null,
    bytes     bigint not null,
    primary key (day, tenant_id)
) with (fillfactor = 50);

-- Where each server stores logs. A server puts a file with its id into its folder, and looks for the files of the others.
-- `apart` are the names of those that store logs elsewhere.
create table mainspring.log_places (
    server_id uuid primary key,
    name      text not null,
    kind      text not null,
    place     text not null,
    apart     text[] not null default '{}',
    seen_at   timestamptz not null default clock_timestamp()
);
