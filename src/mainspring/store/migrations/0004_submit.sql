-- stage: pre
-- Jobs on their way from mainspring.submit(jsonb) to runs and jobs. The routines are in store/routines.

-- What a transaction has submitted and not yet stored. Rows come and go within one transaction, so nothing of it needs
-- to survive a crash. A trigger moves them to runs and jobs when the transaction commits.
create unlogged table mainspring.submissions (
    xact          xid8 not null default pg_current_xact_id(),
    turn          bigint generated always as identity,
    tenant_id     int not null,
    run_id        uuid not null,
    job_id        text,
    queue         text not null,
    priority      smallint not null,
    task          text not null,
    labels        text not null,
    kind          text not null,
    fire_at       timestamptz,
    every         numeric,
    overlap       smallint not null,
    max_attempts  smallint not null,
    name          text,
    payload       json,
    spec          json,
    primary key (xact, turn)
);

