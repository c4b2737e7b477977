// Verbs on the chosen jobs. Each names how many and what follows; failures are counted and shown.
import { useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { call, Refused } from "../../api/client";
import type { JobListRow } from "../../api/schema";
import { plural } from "../../lib/format";
import { Button } from "../../ui/Button";
import { Confirm } from "../../ui/Dialog";
import { say } from "../../ui/Toasts";
import styles from "./BulkBar.module.css";

interface Verb {
  name: string;
  effect: string;
  danger?: boolean;
  act: (job: JobListRow) => Promise<unknown>;
}

const path = (job: JobListRow): string => `/v1/jobs/${encodeURIComponent(job.job_id)}`;
const VERBS: Verb[] = [
  {
    name: "Pause", effect: "They do not fire until they are resumed. Runs that have started go on.",
    act: (job) => call("POST", `${path(job)}:pause`, { body: {}, version: job.version }),
  },
  {
    name: "Resume", effect: "They fire again by their schedules, from now on.",
    act: (job) => call("POST", `${path(job)}:resume`, { body: {}, version: job.version }),
  },
  {
    name: "Run now", effect: "Each runs once now, beside its schedule.",
    act: (job) => call("POST", `${path(job)}:runNow`, { body: {} }),
  },
  {
    name: "Cancel", danger: true, effect: "They fire no more, and their live runs are stopped.",
    act: (job) => call("DELETE", path(job), { version: job.version }),
  },
];

export function BulkBar({ jobs, onDone }: { jobs: JobListRow[]; onDone: () => void }) {
  const [verb, setVerb] = useState<Verb | null>(null);
  const client = useQueryClient();
  const act = async (): Promise<void> => {
    if (verb === null) return;
    const refusals: string[] = [];
    for (const job of jobs) {
      try {
        await verb.act(job);
      } catch (error) {
        refusals.push(`${job.name}: ${error instanceof Refused ? error.problem.detail : String(error)}`);
      }
    }
    await client.invalidateQueries({ queryKey: ["list", "/v1/jobs"] });
    say(`${verb.name}: done for ${plural(jobs.length - refusals.length, "job")}.`);
    if (refusals.length > 0) throw new Error(`${plural(refusals.length, "job")} refused. ${refusals.slice(0, 5).join(" · ")}`);
    onDone();
  };
  return (
    <div className={styles.bar} role="toolbar" aria-label="Verbs for the selected jobs">
      <strong>{jobs.length} selected</strong>
      {VERBS.map((one) => (
        <Button key={one.name} kind={one.danger ? "danger" : "plain"} onClick={() => setVerb(one)}>
          {one.name}
        </Button>
      ))}
      <Button kind="quiet" onClick={onDone}>
        Select none
      </Button>
      {verb ? (
        <Confirm
          title={`${verb.name}: ${plural(jobs.length, "job")}?`} verb={`${verb.name} ${plural(jobs.length, "job")}`}
          danger={verb.danger === true} amount={jobs.length} act={act} onClose={() => setVerb(null)}
        >
          <p>{verb.effect}</p>
          <ul className="muted">
            {jobs.slice(0, 6).map((job) => (
              <li key={job.job_id} className="cut">
                {job.name}
              </li>
            ))}
            {jobs.length > 6 ? <li>and {jobs.length - 6} more</li> : null}
          </ul>
        </Confirm>
      ) : null}
    </div>
  );
}
