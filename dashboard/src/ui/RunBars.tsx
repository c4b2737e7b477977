// The last runs of a job, newest at the right: height is the duration, hue and hatching the outcome. Each leads to its run.
import { Link } from "@tanstack/react-router";
import { duration } from "../lib/format";
import { usePreferences } from "../lib/preferences";
import { absolute, zoneOf } from "../lib/time";
import styles from "./RunBars.module.css";
import { hueOf, words } from "./StateMark";

const MOST = 48; // each is wide enough for a finger

interface Bar {
  run_id: string;
  status: string;
  duration: number | null;
  scheduled_for: string;
}

export function RunBars({ runs, label }: { runs: Bar[]; label: string }) {
  const { zone } = usePreferences();
  const when = (run: Bar): string => absolute(Date.parse(run.scheduled_for), zoneOf(zone));
  const longest = Math.max(0.001, ...runs.map((run) => run.duration ?? 0));
  return (
    <ol className={styles.bars} aria-label={label}>
      {runs.slice(0, MOST).map((run) => (
        <li key={run.run_id}>
          <Link
            to="/runs/$run" params={{ run: run.run_id }} className={`${styles.bar} ${styles[hueOf(run.status)]}`}
            aria-label={`${words(run.status)} ${duration(run.duration)} ${when(run)}`}
            title={`${words(run.status)} · ${duration(run.duration) || "not ended"} · ${when(run)}`}
          >
            <span style={{ height: `${heightOf(run, longest)}%` }} />
          </Link>
        </li>
      ))}
    </ol>
  );
}

/** Durations differ by orders of magnitude: the height follows their square root. */
export function heightOf(run: Pick<Bar, "duration">, longest: number): number {
  return run.duration === null ? 100 : Math.max(12, Math.sqrt(run.duration / longest) * 100);
}
