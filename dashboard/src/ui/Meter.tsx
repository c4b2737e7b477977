// How much is done, as a bar and as words.
import type { ReactNode } from "react";
import styles from "./Meter.module.css";

interface Props {
  label: string;
  total: number;
  /** Of these, what went well, what goes on and what did not go well. */
  good?: number;
  going?: number;
  bad?: number;
  wide?: boolean;
  children?: ReactNode;
}

export function Meter({ label, total, good = 0, going = 0, bad = 0, wide = false, children }: Props) {
  const most = Math.max(1, total, good + going + bad);
  const part = (value: number): { width: string } => ({ width: `${(value / most) * 100}%` });
  return (
    <span className={wide ? styles.wide : styles.meter}>
      <span
        className={styles.bar} role="progressbar" aria-label={label} aria-valuemin={0} aria-valuemax={most} aria-valuenow={good + bad}
      >
        <span className={styles.good} style={part(good)} />
        <span className={styles.going} style={part(going)} />
        <span className={styles.bad} style={part(bad)} />
      </span>
      {children}
    </span>
  );
}
