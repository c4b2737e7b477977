// Create or change a job. What is typed stays in the browser until it is accepted, so that nothing is lost.
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { useNavigate, useSearch } from "@tanstack/react-router";
import { type FormEvent, useEffect, useState } from "react";
import { call, change, post, Refused } from "../../api/client";
import { jobPath, jobQuery } from "../../api/queries";
import type { JobCreated, JobView } from "../../api/schema";
import { sessionQuery, useMay } from "../../api/session";
import { Button, LinkButton } from "../../ui/Button";
import { ConflictOrProblem, OnlyLooks } from "../../ui/Dialog";
import { Field, Select } from "../../ui/Field";
import { Card, Page, Skeleton } from "../../ui/Page";
import { ProblemBox } from "../../ui/Problem";
import { say } from "../../ui/Toasts";
import { AsText } from "./AsText";
import { changesOf, copyOf, type Draft, draftOf, EMPTY, requestOf, type Set } from "./draft";
import { forget, keep, restored, typedOver } from "./drafts";
import styles from "./JobForm.module.css";
import { allProblems, type Problems } from "./problems";
import { SchedulePart } from "./SchedulePart";
import { WhatPart } from "./WhatPart";

export function JobFormPage() {
  const { from, edit } = useSearch({ from: "/jobs/new" });
  const source = edit ?? from;
  const job = useQuery({ ...jobQuery(source ?? ""), enabled: source !== undefined, refetchInterval: false });
  if (source === undefined) return <JobForm key="new" />;
  if (job.isPending) return <Skeleton />;
  if (job.data === undefined)
    return (
      <Page title="Edit">
        <ProblemBox error={job.error} retry={() => void job.refetch()} />
      </Page>
    );
  return <JobForm key={`${edit === undefined ? "copy" : "edit"} ${source}`} job={job.data} editing={edit !== undefined} />;
}

function JobForm({ job, editing = false }: { job?: JobView; editing?: boolean }) {
  const tenant = useQuery(sessionQuery).data?.tenant ?? "";
  const key = `${tenant}.${job === undefined ? "new" : `${editing ? "edit" : "copy"}.${job.job_id}`}`;
  const [kept, setKept] = useState(() => restored(key));
  // The job that was shown when the editing began: the changes, and their version, are relative to it.
  const [base, setBase] = useState(job);
  const [version, setVersion] = useState(kept?.version ?? job?.version ?? null);
  const before = base === undefined ? EMPTY : draftOf(base, !editing);
  const [draft, setDraft] = useState<Draft>(() => ({ ...before, ...kept?.typed }));
  const [error, setError] = useState<unknown>(null);
  const [problems, setProblems] = useState<Problems>({});
  const [busy, setBusy] = useState(false);
  const mayChange = useMay("jobs.update", editing ? (job?.created_by?.id ?? null) : undefined);
  const navigate = useNavigate();
  const client = useQueryClient();
  const set: Set = (change) => setDraft((old) => ({ ...old, ...change }));
  useEffect(() => keep(key, { typed: typedOver(before, draft), version }), [key, draft, version]);
  const submit = async (event: FormEvent): Promise<void> => {
    event.preventDefault();
    setBusy(true);
    try {
      const id = editing && base !== undefined ? await save(base, version, before, draft) : await create(base, draft);
      forget(key);
      await client.invalidateQueries({ queryKey: ["job", id] });
      say(editing ? "The job is changed." : "The job is created.");
      await navigate({ to: "/jobs/$job", params: { job: id } });
    } catch (problem) {
      setError(problem);
      setProblems(await allProblems(problem, base === undefined ? requestOf(draft) : copyOf(base, draft)));
    } finally {
      setBusy(false);
    }
  };
  const takeNewest = async (): Promise<void> => {
    if (base === undefined) return;
    setBusy(true);
    try {
      const newest = (await call<JobView>("GET", jobPath(base.job_id))).data;
      setDraft({ ...draftOf(newest, false), ...typedOver(before, draft) });
      setBase(newest);
      setVersion(newest.version);
      setError(null);
      setProblems({});
    } catch (problem) {
      setError(problem);
    } finally {
      setBusy(false);
    }
  };
  const startAnew = (): void => {
    setDraft(before);
    setVersion(base?.version ?? null);
    setKept(null);
  };
  const conflict = error instanceof Refused && error.problem.code === "version_mismatch";
  const title = editing ? `Edit ${job?.name ?? ""}` : "Create a job";
  return (
    <Page title={title}>
      {mayChange ? null : <OnlyLooks />}
      {kept === null ? null : (
        <p role="status">
          What you typed here before is in the form. <Button onClick={startAnew}>Start anew</Button>
        </p>
      )}
      <form className={styles.form} onSubmit={(event) => void submit(event)}>
        <Card title="What">
          <div className={styles.part}>
            <div className={styles.grid}>
              <Field label="Name" value={draft.name} problem={problems["name"]} onChange={(event) => set({ name: event.target.value })} />
              <Field
                label="Id" value={draft.jobId} disabled={editing} help="to find it again; left empty, one is made" problem={problems["job_id"]}
                onChange={(event) => set({ jobId: event.target.value })}
              />
            </div>
            <WhatPart draft={draft} set={set} problems={problems} />
          </div>
        </Card>
        <Card title="When">
          <SchedulePart draft={draft} set={set} problems={problems} />
        </Card>
        <Card title="How">
          <How draft={draft} set={set} problems={problems} />
        </Card>
        {error ? <ConflictOrProblem error={error} /> : null}
        {conflict ? (
          <Button onClick={() => void takeNewest()}>Put my changes on top of the newest version</Button>
        ) : null}
        <div className={styles.foot}>
          <Button kind="primary" type="submit" busy={busy} disabled={!mayChange}>
            {editing ? "Save" : "Create"}
          </Button>
          <LinkButton to={editing && job ? "/jobs/$job" : "/jobs"} params={{ job: job?.job_id ?? "" } as never}>
            Back
          </LinkButton>
        </div>
        <AsText draft={draft} base={base} />
      </form>
    </Page>
  );
}

async function save(base: JobView, version: number | null, before: Draft, draft: Draft): Promise<string> {
  const seen = version ?? base.version;
  await change("PATCH", jobPath(base.job_id), seen, changesOf(base, before, draft));
  return base.job_id;
}

async function create(base: JobView | undefined, draft: Draft): Promise<string> {
  return (await post<JobCreated>("/v1/jobs", base === undefined ? requestOf(draft) : copyOf(base, draft))).job_id;
}

function How({ draft, set, problems }: { draft: Draft; set: Set; problems: Record<string, string> }) {
  const text = (name: keyof Draft, label: string, help?: string, field: string = name) => (
    <Field label={label} help={help} value={draft[name]} problem={problems[field]} onChange={(event) => set({ [name]: event.target.value })} />
  );
  return (
    <div className={styles.grid}>
      {text("queue", "Queue", "default: default, or that of the task")}
      <Select
        label="Priority" value={draft.priority} problem={problems["priority"]} onChange={(event) => set({ priority: event.target.value })}
        options={[["", "default"], ["low", "low"], ["normal", "normal"], ["high", "high"], ["critical", "critical"]]}
      />
      {text("timeout", "Timeout", "such as 30s, 10m, 2h")}
      {text("attempts", "Attempts", "the first one included", "retry.max_attempts")}
      <Select
        label="While one is alive" value={draft.overlap} problem={problems["overlap"]} onChange={(event) => set({ overlap: event.target.value })}
        options={[["", "default"], ["skip", "skip the new run"], ["queue", "queue the new run"], ["allow", "run both"], ["cancel_previous", "cancel the earlier one"]]}
      />
      <Select
        label="Fires that came late" value={draft.misfire} problem={problems["misfire"]} onChange={(event) => set({ misfire: event.target.value })}
        options={[["", "default"], ["skip", "skip them"], ["once", "run one for all"], ["all", "run all"]]}
      />
      {text("owner", "Owner")}
      {text("labels", "Labels", "key=value, key=value")}
      {text("description", "Description")}
    </div>
  );
}
