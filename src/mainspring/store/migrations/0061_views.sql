-- stage: pre

-- Saved views of lists: a filter and columns, with a name that all of a tenant see. `list` is the list that it shows.
create table mainspring.views (
    tenant_id  int not null,
    name       text not null,
    list       text not null,
    version    int not null default 1,
    filter     json not null,
    columns    text[] not null default '{}',
    created_at timestamptz not null default clock_timestamp(),
    changed_at timestamptz not null default clock_timestamp(),
    changed_by text not null,
    primary key (tenant_id, name)
);
