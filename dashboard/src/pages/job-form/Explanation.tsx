// A schedule in words, its warnings and its next fires.
import type { ScheduleExplanation } from "../../api/schema";
import { Button } from "../../ui/Button";
import type { Set } from "./draft";
import styles from "./JobForm.module.css";

const RATE = new Intl.NumberFormat("en", { maximumSignificantDigits: 3 });

export function Explanation({ shown, set }: { shown: ScheduleExplanation; set: Set }) {
  const { spread } = shown;
  return (
    <div className={styles.part} aria-live="polite">
      <p className={styles.words}>{shown.words}</p>
      {shown.warnings.map((warning) => (
        <p key={warning.text} className={warning.kind === "note" ? "muted" : styles.warn}>
          {warning.text}
        </p>
      ))}
      {spread ? (
        <p className={styles.warn}>
          {spread.reason}{" "}
          {spread.cron ? <Button onClick={() => set({ cron: spread.cron ?? "" })}>Use {spread.cron}</Button> : null}{" "}
          {spread.jitter ? <Button onClick={() => set({ jitter: spread.jitter ?? "" })}>Jitter {spread.jitter}</Button> : null}
        </p>
      ) : null}
      {shown.fires.length > 0 ? (
        <ol className={styles.fires} aria-label="Next fires">
          {shown.fires.map((fire) => (
            <li key={fire.at}>
              {fire.weekday.slice(0, 3)} {fire.local.replace("T", " ")}
            </li>
          ))}
        </ol>
      ) : null}
      {shown.fires_per_day ? (
        <p className="muted">
          Times in {shown.timezone} · on average {RATE.format(shown.fires_per_day)} {shown.fires_per_day === 1 ? "fire" : "fires"} a day
        </p>
      ) : null}
    </div>
  );
}
