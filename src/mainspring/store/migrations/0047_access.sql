-- stage: pre

-- created_by: the token that created the job, or that ran it by hand. A run of a schedule has that of its job. Null: it was
-- created in SQL or before this column, or it is a step of a workflow run.
alter table mainspring.jobs add column created_by uuid;
alter table mainspring.runs add column created_by uuid;
alter table mainspring.run_history add column created_by uuid;

-- narrowed: what the token reaches of its tenant (operations/access/narrowing.py). Null: everything that its role allows.
alter table mainspring.tokens add column narrowed json;

-- token_id: the token that began it.
alter table mainspring.operations add column token_id uuid;
