-- stage: pre

-- For how many days the history of a tenant is kept, if that is shorter than for others. history_from: what ended on earlier
-- days is dropped already. history_cursor: of that day, the runs up to this one.
alter table mainspring.tenant_quotas
    add column history_days int, add column history_from date, add column history_cursor uuid;
