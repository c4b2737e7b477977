-- stage: pre
-- The token that registered an incarnation. A worker without a secret is bound to it. Empty in rows of older servers,
-- until a newer server hears the worker.
alter table mainspring.workers
    add column token_id uuid;
