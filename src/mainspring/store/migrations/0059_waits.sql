-- stage: pre

-- Steps that wait without a slot. kind: of domain/workflows/waits.py. fence: of the run. wake_at: the end of a sleep, or
-- the timeout of another wait. about: what on_timeout says, and what is shown of the wait. name, key, since: of the event
-- that it waits for, and from when on one counts; looked: those before the wait were looked at. The row is deleted in the
-- transaction that ends the run.
create table mainspring.waits (
    run_id    uuid primary key,
    tenant_id int not null,
    kind      smallint not null,
    fence     int not null,
    began_at  timestamptz not null,
    wake_at   timestamptz,
    about     json not null,
    name      text,
    key       text,
    since     timestamptz,
    looked    boolean not null default false
);
create index waits_due on mainspring.waits (wake_at) where wake_at is not null;
create index waits_for_people on mainspring.waits (tenant_id, run_id) where kind = 2;
create index waits_for_events on mainspring.waits (tenant_id, name, key) where kind = 3;
create index waits_to_look on mainspring.waits (run_id) where kind = 3 and not looked;
