// What became of the newest runs of the jobs of a page: bars, and how many of a week went well. One request for all rows.
import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { createContext, useContext } from "react";
import { get } from "../../api/client";
import type { JobListRow, JobOutcomeList, JobOutcomes } from "../../api/schema";
import { duration, percent, plural } from "../../lib/format";
import { heightOf } from "../../ui/RunBars";
import bars from "../../ui/RunBars.module.css";
import { hueOf, words } from "../../ui/StateMark";
import styles from "./Outcomes.module.css";

export const OutcomesOfPage = createContext<ReadonlyMap<string, JobOutcomes>>(new Map());

/** Jobs that run again: a one-time job has one run, which its row shows. */
const RECURRING = ["CRON", "INTERVAL", "RRULE", "AFTER", "EVENT", "MANUAL"];

export function useOutcomes(jobs: JobListRow[]): ReadonlyMap<string, JobOutcomes> {
  const ids = jobs.filter((job) => RECURRING.includes(job.schedule_type)).map((job) => job.job_id).sort();
  const found = useQuery({
    queryKey: ["outcomes", ids],
    queryFn: ({ signal }) => get<JobOutcomeList>("/v1/insights/jobs", { job: ids }, signal),
    enabled: ids.length > 0, refetchInterval: 10_000, placeholderData: keepPreviousData, retry: false,
  });
  return new Map((found.data?.jobs ?? []).map((one) => [one.job_id, one]));
}

export function Outcomes({ job }: { job: string }) {
  const found = useContext(OutcomesOfPage).get(job);
  if (found === undefined) return null;
  const longest = Math.max(0.001, ...found.runs.map((run) => run.duration ?? 0));
  const judged = found.succeeded + found.failed;
  const failures = found.runs.filter((run) => run.status === "FAILED").length;
  return (
    <span className={styles.outcomes}>
      <span className={styles.bars} role="img" aria-label={`Last ${plural(found.runs.length, "run")}: ${failures === 0 ? "none failed" : `${failures} failed`}`}>
        {found.runs.toReversed().map((run) => (
          <span key={run.run_id} className={`${styles.bar} ${bars[hueOf(run.status)]}`} title={`${words(run.status)} ${duration(run.duration)}`}>
            <span style={{ height: `${heightOf(run, longest)}%` }} />
          </span>
        ))}
      </span>
      {judged === 0 ? null : (
        <Link
          to="/runs" search={{ job, w: "7d" }} className={found.failed > 0 ? styles.bad : undefined}
          title={`${found.succeeded} of ${judged}${found.more ? ", the newest ones," : ""} succeeded in 7 days`}
          aria-label={`${percent(found.succeeded / judged)} succeeded in 7 days`}
        >
          {percent(found.succeeded / judged)}
        </Link>
      )}
    </span>
  );
}
