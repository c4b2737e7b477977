-- stage: pre
-- Tenants beside `default`, and workers that all of them share. Tenant 0 is none: it stands for every tenant, on the
-- tokens of shared workers, on these workers and on what they declare about tasks.
alter table mainspring.tenants add check (tenant_id > 0);
