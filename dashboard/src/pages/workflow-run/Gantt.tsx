// Steps over time: light while they wait, full while they run.
import { useMemo, useState } from "react";
import type { WorkflowRunView } from "../../api/schema";
import { isLive } from "../../api/queries";
import { duration } from "../../lib/format";
import { useNow } from "../../live/clock";
import { Parts } from "../../ui/Parts";
import { hueOf, StateShape, words } from "../../ui/StateMark";
import hues from "../../ui/hues.module.css";
import { criticalPath, ticksOf } from "./critical";
import styles from "./Graph.module.css";

export function Gantt({ run, onChoose }: { run: WorkflowRunView; onChoose: (name: string) => void }) {
  const now = useNow(isLive(run.status));
  const [hide, setHide] = useState(false);
  const first = Date.parse(run.start_time ?? run.created_at);
  const last = run.end_time ? Date.parse(run.end_time) : now;
  const span = Math.max(1, last - first);
  const at = (moment: string | null | undefined): number => (((moment ? Date.parse(moment) : now) - first) / span) * 100;
  const steps = run.steps.filter((step) => step.status !== null && (!hide || step.end_time === null || step.end_time === undefined));
  const critical = useMemo(() => criticalPath(run.steps, run.edges), [run.steps, run.edges]);
  return (
    <div className={styles.panel}>
      <p className={styles.legend} role="note" aria-label="Legend">
        <span><i className={styles.waits} aria-hidden="true" />waits</span>
        <span><i className={styles.runs} aria-hidden="true" />runs</span>
        <span><i className={styles.decides} aria-hidden="true" />decides how long the run takes</span>
      </p>
      <label>
        <input type="checkbox" checked={hide} onChange={(event) => setHide(event.target.checked)} /> Hide finished steps
      </label>
      <Parts label="the steps" rows={steps}>
        {(shown) => (
          <div className={styles.gantt}>
            <div className={styles.axis} role="img" aria-label={`From ${duration(0)} to ${duration(span / 1000)}`}>
              {ticksOf(span / 1000).map((tick) => (
                <span key={tick} style={{ left: `${((tick * 1000) / span) * 100}%` }}>{tick === 0 ? "0" : duration(tick)}</span>
              ))}
            </div>
            <div role="list" aria-label="Steps over time">
            {shown.map((step) => {
              const started = step.start_time ?? step.end_time ?? null;
              const begin = at(step.created_at);
              const start = started ? at(started) : 100;
              const end = step.end_time ? at(step.end_time) : step.start_time ? 100 : start;
              return (
                <div key={step.name} role="listitem">
                  <button type="button" aria-label={`${step.name}: ${words(step.status ?? "")} ${duration(step.duration)}${critical.has(step.name) ? ", on the critical path" : ""}`}
                    className={`${styles.row} ${critical.has(step.name) ? styles.critical : ""} ${hues[hueOf(step.status ?? "")]} ${styles[hueOf(step.status ?? "")] ?? ""}`} onClick={() => onChoose(step.name)}>
                    <span className={styles.name}>
                      <StateShape state={step.status ?? ""} size={12} />
                      <span className={`cut ${styles.texts}`}>{step.name}</span>
                    </span>
                    <span className={styles.track}>
                      <span className={styles.wait} style={{ left: `${begin}%`, width: `${Math.max(0, start - begin)}%` }} />
                      {step.start_time ? <span className={styles.ran} style={{ left: `${start}%`, width: `${Math.max(0, end - start)}%` }} /> : null}
                    </span>
                    <span className={styles.note}>{duration(step.duration)}</span>
                  </button>
                </div>
              );
            })}
            </div>
          </div>
        )}
      </Parts>
    </div>
  );
}
