-- Parts that several queries share. `-- fragment: name` starts one; a query takes it in with {{name}}.

-- fragment: run_columns
-- What live and ended runs have in common: the fields of store/history.py RunRow.
run_id, lane_id, state, attempt, max_attempts, fence, scheduled_for, fired_at, cancel_requested_at, worker_id, node_id,
       job_id, trigger, name, payload::text as payload_text, spec::text as spec_text

-- fragment: live_run_columns
-- The fields of store/history.py LiveRun.
{{run_columns}},
       ready_at, claimed_at, deadline, last_error, progress, progress_text, (select clock_timestamp()) as now

-- fragment: ended_run_columns
-- The fields of store/history.py EndedRun.
{{run_columns}},
       started_at, ended_at, ran_ms, reason, error, result::text as result_text

-- fragment: job_columns
-- The fields of store/jobs.py JobRow.
tenant_id, job_id, lane_id, shard, status, version, overlap, next_fire_at, last_fired_for, paused_from, created_at,
       updated_at, name, schedule::text as schedule_text, payload::text as payload_text, spec::text as spec_text

-- fragment: dead_letter_columns
-- The fields of store/dead_letters.py DeadLetterRow.
run_id, lane_id, job_id, name, attempts, error, reason, trigger, scheduled_for, died_at, payload::text as payload_text

-- fragment: worker_columns
-- The first fields of store/workers.py WorkerRow; w is the worker.
w.worker_id, w.tenant_id, w.name, w.queues, w.tasks, w.labels::text as labels_text, w.version, w.slots, w.state,
       w.registered_at

-- fragment: token_columns
-- The fields of store/tokens.py TokenRow; t is the token, n its tenant.
t.token_id, t.tenant_id, n.name as tenant, t.role, t.name, t.created_at, t.expires_at, t.revoked_at

-- fragment: tenant_columns
-- The fields of store/tenants.py TenantRow.
tenant_id, name, created_at
