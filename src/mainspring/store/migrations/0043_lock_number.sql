-- stage: post
-- breaking
-- The keys of our advisory locks were hashes of fixed texts. Everybody who may connect to the database can take such a
-- lock, and would stop all servers. From here on the keys are made of a random number too, which only the owner and the
-- servers can read (lock_key in fragments.sql). Older code would take other locks, so it must not start.
-- Whoever has taken a lock has read this table, and its lock on the table ends with the transaction, as the advisory lock
-- does. So this statement waits until no lock with an old key is held, and those that follow find the number.
alter table mainspring.routines add column lock_number uuid not null default gen_random_uuid();
