// A state is always a shape and a word; colour only helps.
import type { ReactNode } from "react";
import hues from "./hues.module.css";
import styles from "./StateMark.module.css";

type Hue = "success" | "failed" | "running" | "held" | "idle";

const HUES: Record<string, Hue> = {
  SUCCESS: "success", COMPLETED: "success", DONE: "success", LIVE: "success", FAILED: "failed", LOST: "failed", NO_WORKER: "failed", DEAD: "failed",
  RUNNING: "running", HELD: "held", MISSED: "held", DRAINING: "held", PAUSED: "held", OPEN: "failed",
  HALF_OPEN: "held", HEALTHY: "success", LATE: "held", FAILING: "failed", SILENT: "failed", CLOSED: "success", CANCEL_REQUESTED: "held",
};

export function hueOf(state: string): Hue {
  return HUES[state.toUpperCase()] ?? "idle";
}

function tick(): ReactNode {
  return (
    <>
      <circle cx="8" cy="8" r="7" fill="currentColor" />
      <path d="M4.8 8.2l2.2 2.2 4.2-4.6" className={styles.cut} />
    </>
  );
}

function cross(): ReactNode {
  return (
    <>
      <rect x="1.5" y="1.5" width="13" height="13" rx="2" fill="currentColor" />
      <path d="M5.3 5.3l5.4 5.4M10.7 5.3l-5.4 5.4" className={styles.cut} />
    </>
  );
}

const SHAPES: Record<string, () => ReactNode> = {
  SUCCESS: tick,
  COMPLETED: tick,
  DONE: tick,
  CLOSED: tick,
  HEALTHY: tick,
  FAILING: cross,
  LATE: () => <path d="M8 2.3L14.3 13.5H1.7z" className={styles.stroke} />,
  SILENT: () => <circle cx="8" cy="8" r="6" className={styles.dashed} />,
  LIVE: () => <circle cx="8" cy="8" r="5" fill="currentColor" />,
  FAILED: cross,
  LOST: cross,
  NO_WORKER: cross,
  OPEN: cross,
  RUNNING: () => (
    <g className={styles.turning}>
      <path d="M8 2a6 6 0 1 1-5.6 3.9" className={styles.stroke} />
    </g>
  ),
  HELD: () => (
    <>
      <rect x="2.5" y="7" width="11" height="7.5" rx="1.5" fill="currentColor" />
      <path d="M5 7V5a3 3 0 0 1 6 0v2" className={styles.stroke} />
    </>
  ),
  MISSED: () => <path d="M8 2.3L14.3 13.5H1.7z" className={styles.stroke} />,
  QUEUED: () => <circle cx="8" cy="8" r="6" className={styles.dashed} />,
  SCHEDULED: () => (
    <>
      <circle cx="8" cy="8" r="6.2" className={styles.thin} />
      <path d="M8 4.5V8l2.5 1.5" className={styles.thin} />
    </>
  ),
  WAITING: () => (
    <>
      <circle cx="5.5" cy="8" r="3.7" className={styles.thin} />
      <circle cx="10.5" cy="8" r="3.7" className={styles.thin} />
    </>
  ),
  CANCELLED: () => (
    <>
      <circle cx="8" cy="8" r="6.2" className={styles.thin} />
      <path d="M3.8 12.2l8.4-8.4" className={styles.thin} />
    </>
  ),
  SKIPPED: () => <path d="M3 3.5L7.5 8 3 12.5M8.5 3.5L13 8l-4.5 4.5" className={styles.stroke} />,
  PAUSED: () => <path d="M5.5 3v10M10.5 3v10" className={styles.bars} />,
  DRAINING: () => <path d="M8 2v9M4 8l4 4 4-4M3 14.2h10" className={styles.stroke} />,
};

export function StateShape({ state, size = 16 }: { state: string; size?: number }) {
  const name = state.toUpperCase();
  const shape = SHAPES[name] ?? (() => <circle cx="8" cy="8" r="3" fill="currentColor" />);
  return (
    <svg width={size} height={size} viewBox="0 0 16 16" className={hues[hueOf(name)]} aria-hidden="true">
      {shape()}
    </svg>
  );
}

export function words(state: string): string {
  const text = state.toLowerCase().replaceAll("_", " ");
  return text.charAt(0).toUpperCase() + text.slice(1);
}

export function StateMark({ state, detail, large = false }: { state: string; detail?: string | null; large?: boolean }) {
  return (
    <span className={`${styles.mark} ${hues[hueOf(state)]} ${large ? styles.large : ""}`}>
      <StateShape state={state} size={large ? 20 : 16} />
      <span>{words(state)}</span>
      {detail ? <span className="muted"> {detail}</span> : null}
    </span>
  );
}
