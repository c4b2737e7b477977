-- stage: pre

-- What an instance administrator allows a tenant; null: as much as it wants. The gate of the tenant reads concurrent_runs,
-- runs_per_minute and queued_runs, so every change raises gate_revision. tat: when the bucket of submissions is full again.
create table mainspring.tenant_quotas (
    tenant_id              int primary key,
    stored_jobs            int,
    submissions_per_second int,
    runs_per_minute        int,
    queued_runs            int,
    concurrent_runs        int,
    payload_bytes          int,
    log_bytes_per_day      bigint,
    tokens                 int,
    tat                    timestamptz,
    version                int not null default 1,
    updated_at             timestamptz not null default clock_timestamp(),
    updated_by             text not null
) with (fillfactor = 50);
