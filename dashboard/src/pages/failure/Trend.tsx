import type { FailureGroupView } from "../../api/schema";
import { duration, short } from "../../lib/format";
import { Chart } from "../../ui/Chart";

export default function Trend({ view }: { view: FailureGroupView }) {
  return (
    <Chart
      title={`Failed attempts, per ${duration(view.step_s)}`} at={view.at} sync="failure" format={short} whole
      lines={[{ label: "failed", values: view.group.series, color: "failed", area: true }]}
    />
  );
}
