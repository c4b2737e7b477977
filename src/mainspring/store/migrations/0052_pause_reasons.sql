-- stage: pre

-- Why people have paused the queue, the tenant or all tenants, in their words.
alter table mainspring.gates add column pause_reason text;

-- Which server shows the state of a tenant in its metrics, and for how long if it is not asked again. All servers see the
-- same state, and a sum over them must count it once.
create unlogged table mainspring.gauge_servers (
    tenant_id int primary key,
    server_id uuid not null,
    asked_at  timestamptz not null,
    until     timestamptz not null
) with (fillfactor = 50);
