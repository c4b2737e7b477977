-- stage: pre

-- How long the output of runs with certain labels is kept. rules: an array of {"labels": {name: value}, "seconds": n}.
create table mainspring.log_retention (
    tenant_id  int primary key,
    version    int not null default 1,
    rules      jsonb not null,
    updated_at timestamptz not null default clock_timestamp(),
    updated_by text not null
);

-- Words have three bytes instead of two, so those that are there are forgotten: the chunk may contain any word.
alter table mainspring.log_chunks drop column words;
alter table mainspring.log_chunks add column words bytea;
alter table mainspring.log_chunks alter column words set storage external;
