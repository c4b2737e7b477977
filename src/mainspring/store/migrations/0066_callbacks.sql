-- stage: pre

-- With this key servers sign the addresses of callbacks. The first server that starts makes it.
create table mainspring.callback_key (
    only_row boolean primary key default true check (only_row),
    key      bytea not null
);

-- The calls that services have made back, one for each attempt: fence is that of the attempt that has called them. It
-- is the result of the step when that waits for it, and is deleted with the end of the run.
create table mainspring.callbacks (
    run_id uuid not null,
    fence  int not null,
    at     timestamptz not null default clock_timestamp(),
    body   json not null,
    primary key (run_id, fence)
);
create index callbacks_oldest on mainspring.callbacks (at);
