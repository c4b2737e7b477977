import { CircleCheck, OctagonAlert, TriangleAlert } from "lucide-react";
import { Link } from "@tanstack/react-router";
import type { Overview } from "../../api/schema";
import { Time } from "../../ui/Time";
import styles from "./Overview.module.css";

const ICONS = { ok: CircleCheck, warning: TriangleAlert, critical: OctagonAlert };

/** How things are, in a sentence: the first thing to read at three in the morning. */
export function VerdictBox({ overview }: { overview: Overview }) {
  const { verdict, problems, paused, warnings } = overview;
  if (verdict === null) return null;
  const Icon = ICONS[verdict.level];
  // The first problem is the verdict itself, and the others stand below it, so that nobody has to count them.
  const text = verdict.text.replace(/ \(\d+ more\)$/, "");
  const more = [...problems.slice(1), ...paused, ...warnings].filter((line) => !text.toLowerCase().startsWith(line.toLowerCase()));
  return (
    <section className={`${styles.verdict} ${styles[verdict.level]}`} aria-label="Verdict" role="status">
      <Icon size={20} aria-hidden="true" />
      <div>
        <strong className="wrap">{text || "All is well."}</strong> <Where line={problems[0] ?? text} />
        {verdict.since ? (
          <span>
            {" "}
            Since <Time at={verdict.since} />.
          </span>
        ) : null}
        {more.map((line) => (
          <p key={line} className="wrap">
            {line} <Where line={line} />
          </p>
        ))}
      </div>
    </section>
  );
}

const PLACES: [RegExp, (found: string) => { to: string; search: Record<string, string>; text: string }][] = [
  [/\bqueue (\S+?)(?:,| |\.?$)/, (name) => ({ to: "/queues", search: { q: name }, text: `Queue ${name}` })],
  [/\bworkers? (?:is|are) lost/, () => ({ to: "/workers", search: { state: "LOST" }, text: "Lost workers" })],
  [/\bno worker\b/, () => ({ to: "/workers", search: {}, text: "Workers" })],
  [/\bfailed\b/, () => ({ to: "/failures", search: { w: "1h" }, text: "Failures" })],
  [/\bis due\b|\bshards?\b|\bscheduler\b/, () => ({ to: "/missed", search: {}, text: "Missed fires" })],
  [/\bruns? waits?\b/, () => ({ to: "/runs", search: { status: "QUEUED" }, text: "Waiting runs" })],
];

/** The page on which one does something about it. */
function Where({ line }: { line: string }) {
  for (const [words, place] of PLACES) {
    const found = line.match(words);
    if (found === null) continue;
    const { to, search, text } = place(found[1] ?? "");
    return (
      <Link to={to} search={search as never}>
        {text}
      </Link>
    );
  }
  return null;
}
