// Why the job did or did not run: at its last fire, or at a time that one types.
import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { CircleHelp } from "lucide-react";
import { type FormEvent, useState } from "react";
import { get } from "../../api/client";
import { jobPath } from "../../api/queries";
import type { JobView, JobWhy } from "../../api/schema";
import { Button } from "../../ui/Button";
import { Field } from "../../ui/Field";
import { Card, Skeleton } from "../../ui/Page";
import { ProblemBox } from "../../ui/Problem";
import { StateMark } from "../../ui/StateMark";
import { Time } from "../../ui/Time";
import styles from "./JobPage.module.css";

export function WhyCard({ job }: { job: JobView }) {
  const [typed, setTyped] = useState("");
  const [at, setAt] = useState<string | undefined>(undefined);
  const why = useQuery({
    queryKey: ["job", job.job_id, "why", at],
    queryFn: ({ signal }) => get<JobWhy>(`${jobPath(job.job_id)}/why`, { at }, signal),
    refetchInterval: at === undefined ? 10_000 : false,
    placeholderData: keepPreviousData,
    retry: false,
  });
  const ask = (event: FormEvent): void => {
    event.preventDefault();
    setAt(typed || undefined);
  };
  return (
    <Card title="Why did it run, or not?">
      <form className={styles.ask} onSubmit={ask}>
        <Field label="Time to explain" help={`by the clocks of ${job.timezone ?? "UTC"}`} type="datetime-local" step={60} value={typed} onChange={(event) => setTyped(event.target.value)} />
        <Button type="submit" icon={<CircleHelp size={14} />}>Explain</Button>
      </form>
      {why.isPending ? <Skeleton lines={1} /> : why.error ? <ProblemBox error={why.error} /> : why.data ? <Answer why={why.data} last={at === undefined} /> : null}
    </Card>
  );
}

function Answer({ why, last }: { why: JobWhy; last: boolean }) {
  return (
    <div className={styles.why} role="status">
      <p>
        {why.run_status ? <StateMark state={why.run_status} /> : null} <span className="wrap">{why.why}</span>
      </p>
      <p className="muted">
        {!last ? "About" : Date.parse(why.fire ?? why.at) > Date.now() ? "About its next fire" : "About its last fire"} <Time at={why.fire ?? why.at} exact focusable />
        {why.run_id ? <> · <Link to="/runs/$run" params={{ run: why.run_id }}>the run</Link></> : null}
        {why.fire_before ? <> · fire before: <Time at={why.fire_before} exact /></> : null}
        {why.fire_after ? <> · fire after: <Time at={why.fire_after} exact /></> : null}
      </p>
    </div>
  );
}
