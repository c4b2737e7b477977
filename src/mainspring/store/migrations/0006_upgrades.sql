-- stage: pre
-- What old code needs to know of a newer schema, the state of the routines, and tenants of callers in SQL.

-- stage: `pre` or `post`, see docs/upgrading.md. breaking: code that does not know this migration must not start. A row
-- that does not say so counts as breaking.
alter table mainspring.schema_migrations
    add column stage    text not null default 'pre' check (stage in ('pre', 'post')),
    add column breaking boolean not null default true;
update mainspring.schema_migrations set breaking = false;

-- The routines of store/routines as they were applied last: by which version of Mainspring, and which functions those
-- are. One row.
create table mainspring.routines (
    only_row    boolean primary key default true check (only_row),
    version     text not null,
    hash        text not null,
    functions   text[] not null,
    applied_at  timestamptz not null default clock_timestamp()
);

-- The tenant for which a role that logs in to PostgreSQL submits jobs with mainspring.submit. Written by the operator.
create table mainspring.tenant_roles (
    role        name primary key,
    tenant_id   int not null references mainspring.tenants
);
