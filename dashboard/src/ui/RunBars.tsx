// The last runs of a job, oldest first: height is the duration, hue and hatching the outcome. Each leads to its run.
import { Link } from "@tanstack/react-router";
import { duration } from "../lib/format";
import styles from "./RunBars.module.css";
import { hueOf, words } from "./StateMark";

interface Bar {
  run_id: string;
  status: string;
  duration: number | null;
  scheduled_for: string;
}

export function RunBars({ runs, label }: { runs: Bar[]; label: string }) {
  const longest = Math.max(0.001, ...runs.map((run) => run.duration ?? 0));
  return (
    <ol className={styles.bars} aria-label={label}>
      {[...runs].reverse().map((run) => (
        <li key={run.run_id}>
          <Link
            to="/runs/$run" params={{ run: run.run_id }} className={`${styles.bar} ${styles[hueOf(run.status)]}`}
            aria-label={`${words(run.status)} ${duration(run.duration)} ${run.scheduled_for}`}
            title={`${words(run.status)} · ${duration(run.duration) || "not ended"} · ${run.scheduled_for.slice(0, 19)}Z`}
          >
            <span style={{ height: `${heightOf(run, longest)}%` }} />
          </Link>
        </li>
      ))}
    </ol>
  );
}

/** Durations differ by orders of magnitude: the height follows their square root. */
function heightOf(run: Bar, longest: number): number {
  return run.duration === null ? 100 : Math.max(12, Math.sqrt(run.duration / longest) * 100);
}
