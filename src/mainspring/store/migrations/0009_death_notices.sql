-- stage: pre
-- Death notices of workers. secret_hash: the SHA-256 of the secret with which the watchdog of an incarnation proves its
-- notice. notice_at: when a server took the notice; the incarnation is over since then, and nothing of it runs any more.
alter table mainspring.workers
    add column secret_hash bytea,
    add column notice_at   timestamptz;
