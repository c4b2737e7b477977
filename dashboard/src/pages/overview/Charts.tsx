import { useNavigate } from "@tanstack/react-router";
import type { WindowView } from "../../api/schema";
import { duration, short } from "../../lib/format";
import { inAddress } from "../../lib/time";
import { Chart } from "../../ui/Chart";
import styles from "../../ui/Chart.module.css";

export default function Charts({ window: shown, queue, task }: { window: WindowView; queue: string | undefined; task: string | undefined }) {
  const navigate = useNavigate();
  const toRuns = (status?: string) => (since: Date, until: Date): void => {
    void navigate({ to: "/runs", search: { status, queue, task, since: inAddress(since), until: inAddress(until) } });
  };
  const { series } = shown;
  const step = duration(shown.step_s);
  return (
    <div className={styles.charts}>
      <Chart
        title={`Ended, per ${step}`} at={series.at} sync="overview" format={short} whole onRange={toRuns()}
        lines={[
          { label: "succeeded", values: series.succeeded, color: "success", area: true },
          { label: "failed", values: series.failed, color: "failed", dashed: true },
        ]}
      />
      <Chart
        title="Start lag" at={series.at} sync="overview" format={duration} onRange={toRuns()}
        lines={[
          { label: "p50", values: series.lag_p50, color: "accent" },
          { label: "p99", values: series.lag_p99, color: "held", dashed: true },
        ]}
      />
      <Chart
        title="Waiting and running" at={series.at} sync="overview" format={short} whole
        lines={[
          { label: "waiting", values: series.waiting, color: "muted", area: true },
          { label: "held", values: series.held, color: "held", dashed: true },
          { label: "running", values: series.running, color: "accent" },
        ]}
      />
      <Chart
        title="Busy of all slots" at={series.at} sync="overview" format={short} whole
        lines={[
          { label: "running", values: series.running, color: "accent", area: true },
          { label: "slots", values: series.slots, color: "muted", dashed: true },
        ]}
      />
    </div>
  );
}
