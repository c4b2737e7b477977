// What the processes of a run have used: figures, and how they went over time.
import type { UsageView } from "../../api/schema";
import { bytes, duration } from "../../lib/format";
import { Figure } from "../../ui/Page";
import styles from "./Usage.module.css";

const WIDTH = 96;
const HEIGHT = 20;

export function Usage({ usage }: { usage: UsageView }) {
  const { samples } = usage;
  const cores = rates(samples);
  return (
    <>
      <Figure
        label="CPU time" value={duration(usage.cpu_s)}
        note={<Trend values={cores} label={`at most ${Math.max(0, ...cores).toFixed(1)} cores`} />}
      />
      <Figure
        label="Memory, at most" value={bytes(usage.rss_peak)}
        note={
          usage.rss === null ? (
            <Trend values={samples.map(([, , resident]) => resident)} label="memory over time" />
          ) : (
            `${bytes(usage.rss)} now`
          )
        }
      />
    </>
  );
}

/** A line through the values, from the left to the right. Fewer than three say nothing. */
function Trend({ values, label }: { values: number[]; label: string }) {
  if (values.length < 3) return null;
  const most = Math.max(...values) || 1;
  const points = values.map((value, index) => `${(index / (values.length - 1)) * WIDTH},${HEIGHT - 1 - (value / most) * (HEIGHT - 2)}`);
  return (
    <svg className={styles.trend} viewBox={`0 0 ${WIDTH} ${HEIGHT}`} width={WIDTH} height={HEIGHT} role="img" aria-label={label}>
      <title>{label}</title>
      <polyline points={points.join(" ")} />
    </svg>
  );
}

/** How many cores were busy between two samples. */
function rates(samples: UsageView["samples"]): number[] {
  return samples.slice(1).map(([at, cpu], index) => {
    const [before, spent] = samples[index] ?? [0, 0];
    return at > before ? Math.max(0, cpu - spent) / (at - before) : 0;
  });
}
