-- stage: pre
-- Rates and circuit breakers of lines. A run without them has none of this.

-- rate_keys: the lines of rates (at most two) in which an admitted run has a token. breaker_key: the line of its breaker.
-- Both are null while the run is HELD.
alter table mainspring.runs
    add column rate_keys   bigint[],
    add column breaker_key bigint;

-- The runs that have a token and have not started as far as known, and those that a breaker that opens takes back.
create index runs_paced_1 on mainspring.runs ((rate_keys[1]))
    where rate_keys is not null and started_at is null;
create index runs_paced_2 on mainspring.runs ((rate_keys[2]))
    where rate_keys[2] is not null and started_at is null;
create index runs_behind_breaker on mainspring.runs (breaker_key) where breaker_key is not null;

-- failures: how many in a row open the breaker, for open_for seconds.
alter table mainspring.limits
    add column failures int,
    add column open_for float8;

-- failed: the failures in a row. opened_at: null while the breaker is closed. next_at: until then it admits nobody. probe:
-- the run that was admitted to find out.
alter table mainspring.limit_keys
    add column failed    int not null default 0,
    add column opened_at timestamptz,
    add column probe     uuid;
create index limit_keys_open on mainspring.limit_keys (key_id) where opened_at is not null;
