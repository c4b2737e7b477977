// How the runs of a job do over time: success, duration, start lag.
import { useQuery } from "@tanstack/react-query";
import { useNavigate } from "@tanstack/react-router";
import { get } from "../../api/client";
import { jobPath } from "../../api/queries";
import type { JobSeries } from "../../api/schema";
import { duration, percent, plural } from "../../lib/format";
import { Chart } from "../../ui/Chart";
import styles from "../../ui/Chart.module.css";
import { Card, Skeleton } from "../../ui/Page";
import { ProblemBox } from "../../ui/Problem";
import { Choice } from "../../ui/Tabs";
import { Time } from "../../ui/Time";

const WINDOWS = ["1h", "6h", "24h", "7d", "30d"] as const;
type Window = (typeof WINDOWS)[number];

export default function Trends({ job, w: asked }: { job: string; w: string | undefined }) {
  const w: Window = WINDOWS.find((one) => one === asked) ?? "7d";
  const navigate = useNavigate();
  const series = useQuery({
    queryKey: ["job", job, "series", w],
    queryFn: ({ signal }) => get<JobSeries>(`${jobPath(job)}/series`, { w }, signal),
    refetchInterval: 15_000,
  });
  const choose = (next: Window): void =>
    void navigate({ to: ".", search: (old: Record<string, unknown>) => ({ ...old, w: next }) as never, replace: true, resetScroll: false });
  return (
    <Card title="Trend" aside={<Choice<Window> label="Window" value={w} options={WINDOWS.map((one) => [one, one])} onChange={choose} />}>
      {series.isPending ? (
        <Skeleton />
      ) : series.data === undefined ? (
        <ProblemBox error={series.error} retry={() => void series.refetch()} />
      ) : (
        <Shown series={series.data} />
      )}
    </Card>
  );
}

function Shown({ series }: { series: JobSeries }) {
  const ended = series.succeeded.map((good, index) => good + (series.failed[index] ?? 0));
  const total = ended.reduce((sum, one) => sum + one, 0);
  if (total === 0) return <p className="muted">No run ended in this time.</p>;
  const good = series.succeeded.reduce((sum, one) => sum + one, 0);
  const rates = series.succeeded.map((one, index) => (ended[index] ? one / (ended[index] ?? 1) : null));
  return (
    <>
      <p>
        {percent(good / total)} of {plural(total, "run")} succeeded
        {series.searched_to ? (
          <>
            {" "}
            since <Time at={series.searched_to} exact />: only the newest runs are read
          </>
        ) : null}
      </p>
      <div className={styles.inCard}>
        <Chart
          title={`Success, per ${duration(series.step_s)}`} at={series.at} sync="job" format={percent}
          lines={[{ label: "succeeded", values: rates, color: "success", sparse: true }]}
        />
        <Chart
          title="Duration" at={series.at} sync="job" format={duration}
          lines={[
            { label: "p50", values: series.duration_p50, color: "accent", sparse: true },
            { label: "p99", values: series.duration_p99, color: "held", dashed: true, sparse: true },
          ]}
        />
        <Chart
          title="Start lag" at={series.at} sync="job" format={duration}
          lines={[{ label: "p50", values: series.lag_p50, color: "accent", sparse: true }]}
        />
      </div>
    </>
  );
}
