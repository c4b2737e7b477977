-- stage: pre
-- When a run expires if it has not started (`expires_in` of its job). Null, the rule, takes no space and no index entry.
alter table mainspring.runs add column expires_at timestamptz;
create index runs_expiry on mainspring.runs (expires_at) where expires_at is not null;
