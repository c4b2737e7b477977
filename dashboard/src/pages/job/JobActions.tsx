// The verbs of a job. Each names what follows, sends the version that is shown, and tells of a conflict.
import { useQueryClient } from "@tanstack/react-query";
import { Link, useNavigate } from "@tanstack/react-router";
import { Pause, Pencil, Play, SquareX, Zap } from "lucide-react";
import { useState } from "react";
import { change, type Seen } from "../../api/client";
import { jobPath, useSchema } from "../../api/queries";
import type { JobView, RunNowAccepted } from "../../api/schema";
import { callOf } from "../../lib/call";
import type { Same } from "../../ui/AsCommand";
import { Allowed, Button, LinkButton } from "../../ui/Button";
import { Confirm } from "../../ui/Dialog";
import { parsed, PayloadEditor } from "../../ui/PayloadEditor";
import { Time } from "../../ui/Time";
import { say } from "../../ui/Toasts";

type Verb = "run" | "pause" | "resume" | "cancel";

export function JobActions({ job }: { job: JobView }) {
  const [verb, setVerb] = useState<Verb | null>(null);
  // The version that was shown when the dialog opened: what came since then has not been seen.
  const [version, setVersion] = useState(job.version);
  const ask = (asked: Verb): void => {
    setVersion(job.version);
    setVerb(asked);
  };
  const client = useQueryClient();
  const renew = (): void => void client.invalidateQueries({ queryKey: ["job", job.job_id] });
  const creator = job.created_by?.id ?? null;
  const shared = { onClose: () => setVerb(null), onConflict: renew, creator };
  const turn = (name: string, done: string) => async (): Promise<void> => {
    await change("POST", `${jobPath(job.job_id)}:${name}`, version, {});
    say(`${job.name} ${done}`);
    renew();
  };
  const same = (name: "pause" | "resume"): Same => ({
    command: ["job", name, job.job_id], method: "POST", path: `${jobPath(job.job_id)}:${name}`, python: [name, job.job_id],
  });
  const cancel = async (): Promise<void> => {
    await change("DELETE", jobPath(job.job_id), version);
    say(`${job.name} is cancelled`);
    renew();
  };
  return (
    <>
      <Button kind="primary" needs="jobs.run_now" creator={creator} icon={<Zap size={14} />} onClick={() => ask("run")}>
        Run now
      </Button>
      <Allowed needs="jobs.update" creator={creator}>
        <LinkButton to="/jobs/new" search={{ edit: job.job_id }} icon={<Pencil size={14} />}>
          Edit
        </LinkButton>
      </Allowed>
      {job.status === "PAUSED" ? (
        <Button needs="jobs.resume" creator={creator} icon={<Play size={14} />} data-key="." onClick={() => ask("resume")}>
          Resume
        </Button>
      ) : job.next_fire_at !== null ? (
        <Button needs="jobs.pause" creator={creator} icon={<Pause size={14} />} data-key="." onClick={() => ask("pause")}>
          Pause
        </Button>
      ) : null}
      {["CANCELLED", "COMPLETED", "FAILED"].includes(job.status) ? null : (
        <Button needs="jobs.cancel" creator={creator} icon={<SquareX size={14} />} onClick={() => ask("cancel")}>
          Cancel for good
        </Button>
      )}
      {verb === "run" ? <RunNow job={job} seen={version} onClose={() => setVerb(null)} renew={renew} /> : null}
      {verb === "pause" ? (
        <Confirm title={`Pause ${job.name}?`} verb="Pause" act={turn("pause", "is paused")} same={same("pause")} {...shared}>
          <p>
            It does not fire until it is resumed, so not <Time at={job.next_fire_at} /> either. Fires in between are recorded as missed. Runs that
            have started go on.
          </p>
        </Confirm>
      ) : null}
      {verb === "resume" ? (
        <Confirm title={`Resume ${job.name}?`} verb="Resume" act={turn("resume", "is resumed")} same={same("resume")} {...shared}>
          <p>It fires again by its schedule from now on. Missed fires are not made up for.</p>
        </Confirm>
      ) : null}
      {verb === "cancel" ? (
        <Confirm title={`Cancel ${job.name}?`} verb="Cancel the job" danger act={cancel} same={{ command: ["job", "cancel", job.job_id], method: "DELETE", path: jobPath(job.job_id), python: ["cancel_job", job.job_id] }} {...shared}>
          <p>The job ends: it fires no more, and cannot be resumed. To stop it for a while, pause it. Runs that wait end at once, and workers stop those that run.</p>
        </Confirm>
      ) : null}
    </>
  );
}

function RunNow({ job, seen, onClose, renew }: { job: JobView; seen: Seen; onClose: () => void; renew: () => void }) {
  const schema = useSchema(job.task);
  const own = job.payload === null || job.payload === undefined ? "" : JSON.stringify(job.payload, null, 2);
  const [text, setText] = useState(own);
  const navigate = useNavigate();
  const withPayload = job.command === null && callOf(job) === null;
  const act = async (): Promise<void> => {
    const value = parsed(text);
    if (value === null) throw new Error("The payload is no valid JSON.");
    const body = text === own || !withPayload ? {} : { payload: value.value ?? null };
    const run = await change<RunNowAccepted>("POST", `${jobPath(job.job_id)}:runNow`, seen, body);
    renew();
    say(
      <>
        {run.status === "SKIPPED" ? "The run was skipped: another one is alive. " : "It runs. "}
        <Link to="/runs/$run" params={{ run: run.run_id }}>
          Look at the run
        </Link>
      </>,
    );
    await navigate({ to: "/runs/$run", params: { run: run.run_id } });
  };
  const given = withPayload && text !== own ? (parsed(text)?.value ?? undefined) : undefined;
  const payload = given === undefined ? [] : [given];
  const same: Same = {
    command: ["job", "run", job.job_id, ...payload.flatMap((one) => ["--payload", JSON.stringify(one)])], method: "POST",
    path: `${jobPath(job.job_id)}:runNow`, body: given === undefined ? {} : { payload: given }, python: ["run_now", job.job_id, ...payload],
  };
  return (
    <Confirm title={`Run ${job.name} now?`} verb="Run now" act={act} onClose={onClose} onConflict={renew} creator={job.created_by?.id ?? null} same={same}>
      <p>It runs once, beside its schedule, which stays as it is.</p>
      {withPayload ? <PayloadEditor schema={schema} text={text} onChange={setText} /> : null}
    </Confirm>
  );
}
