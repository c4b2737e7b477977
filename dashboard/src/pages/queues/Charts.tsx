import { useNavigate } from "@tanstack/react-router";
import type { WindowView } from "../../api/schema";
import { duration, short } from "../../lib/format";
import { inAddress } from "../../lib/time";
import { Chart } from "../../ui/Chart";
import styles from "../../ui/Chart.module.css";

/** Throughput, wait and depth of one queue. */
export default function Charts({ window: shown, queue }: { window: WindowView; queue: string }) {
  const navigate = useNavigate();
  const toRuns = (since: Date, until: Date): void => {
    void navigate({ to: "/runs", search: { queue, since: inAddress(since), until: inAddress(until) } });
  };
  const { series } = shown;
  return (
    <div className={styles.inCard}>
      <Chart
        title={`Ended, per ${duration(shown.step_s)}`} at={series.at} sync="queue" format={short} whole onRange={toRuns}
        lines={[
          { label: "succeeded", values: series.succeeded, color: "success", area: true },
          { label: "failed", values: series.failed, color: "failed", dashed: true },
        ]}
      />
      <Chart
        title="Wait for a start" at={series.at} sync="queue" format={duration} onRange={toRuns}
        lines={[
          { label: "p50", values: series.lag_p50, color: "accent", sparse: true },
          { label: "p99", values: series.lag_p99, color: "held", dashed: true, sparse: true },
        ]}
      />
      <Chart
        title="Waiting and running" at={series.at} sync="queue" format={short} whole
        lines={[
          { label: "waiting", values: series.waiting, color: "muted", area: true },
          { label: "held", values: series.held, color: "held", dashed: true },
          { label: "running", values: series.running, color: "accent" },
        ]}
      />
    </div>
  );
}
