import { CircleCheck, OctagonAlert, TriangleAlert } from "lucide-react";
import type { Overview } from "../../api/schema";
import { Time } from "../../ui/Time";
import styles from "./Overview.module.css";

const ICONS = { ok: CircleCheck, warning: TriangleAlert, critical: OctagonAlert };

/** How things are, in a sentence: the first thing to read at three in the morning. */
export function VerdictBox({ overview }: { overview: Overview }) {
  const { verdict, problems, paused } = overview;
  if (verdict === null) return null;
  const Icon = ICONS[verdict.level];
  const more = [...problems.filter((problem) => !verdict.text.startsWith(problem)), ...paused];
  return (
    <section className={`${styles.verdict} ${styles[verdict.level]}`} aria-label="Verdict" role="status">
      <Icon size={20} aria-hidden="true" />
      <div>
        <strong className="wrap">{verdict.text || "All is well."}</strong>
        {verdict.since ? (
          <span>
            {" "}
            Since <Time at={verdict.since} />.
          </span>
        ) : null}
        {more.map((line) => (
          <p key={line} className="wrap">
            {line}
          </p>
        ))}
      </div>
    </section>
  );
}
