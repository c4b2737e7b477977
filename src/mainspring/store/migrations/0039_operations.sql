-- stage: pre
-- Operations: one verb on many jobs, runs or dead letters, chosen by ids or by a filter. They are carried out in slices.
-- count: how many were chosen when it began; exact: whether that was counted to the end. expected: the number that was
-- confirmed. place: where the next slice begins. done and failed: how many were dealt with. failures: the first refusals.
-- reason: why it ended before all were dealt with.
create table mainspring.operations (
    operation_id uuid primary key,
    tenant_id    int not null,
    target       text not null,
    verb         text not null,
    filter       json,
    ids          text[],
    state        smallint not null,
    count        int not null,
    exact        boolean not null,
    expected     int,
    place        text,
    done         int not null default 0,
    failed       int not null default 0,
    failures     json not null default '[]',
    reason       text,
    requested_by text not null,
    created_at   timestamptz not null default clock_timestamp(),
    updated_at   timestamptz not null default clock_timestamp(),
    ended_at     timestamptz
) with (fillfactor = 50);
create index operations_newest on mainspring.operations (tenant_id, operation_id);
create index operations_at_work on mainspring.operations (operation_id) where state = 1;

-- The missed fires of all jobs of a tenant, newest first.
create index missed_fires_newest on mainspring.missed_fires (tenant_id, missed_id);
