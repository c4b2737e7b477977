-- stage: pre
-- How many jobs of a tenant fire in each minute of the days ahead, for tenants with very many jobs: the heat map cannot
-- evaluate a million schedules for a request. Unlogged: it is worked out anew every few minutes.

create unlogged table mainspring.forecasts (
    tenant_id int primary key,
    as_of     timestamptz not null,
    forecast  json not null
);

-- One server at a time works it out. due_at: when the next one may begin, also if the last one has died.
create unlogged table mainspring.forecast_pass (
    only_row   boolean primary key default true check (only_row),
    claimed_at timestamptz not null,
    due_at     timestamptz not null
);
