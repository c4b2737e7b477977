-- stage: pre
-- Why a running run was told to stop. Null: on request.
alter table mainspring.runs add column cancel_reason text;
