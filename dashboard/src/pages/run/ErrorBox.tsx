// The error first: its last line large, the rest on demand, and where else it happened.
import { Link } from "@tanstack/react-router";
import { useState } from "react";
import type { RunView } from "../../api/schema";
import { isLive } from "../../api/queries";
import { errorLine, errorPart, plain, plural } from "../../lib/format";
import { Button } from "../../ui/Button";
import { Words } from "../../ui/Time";
import styles from "./RunPage.module.css";

export function ErrorBox({ run }: { run: RunView }) {
  const [open, setOpen] = useState(false);
  const text = plain(run.error_message ?? "");
  const lines = text.trim().split("\n").length;
  const line = errorLine(text);
  const earlier = isLive(run.status);
  return (
    <section className={`${styles.error} ${earlier ? styles.earlier : ""}`} aria-label={earlier ? "Error of an earlier attempt" : "Error"}>
      {earlier ? <span>{whichOf(run)}</span> : null}
      <strong className="wrap">{line}</strong>
      {lines > 1 || text.length > line.length ? (
        <>
          <span>
            <Button aria-expanded={open} onClick={() => setOpen(!open)}>
              {open ? "Hide" : `Show all ${plural(lines, "line")}`}
            </Button>
          </span>
          {open ? <pre tabIndex={0}>{text}</pre> : null}
        </>
      ) : null}
      <p>
        {run.reason ? <span className="wrap"><Words text={run.reason} /></span> : null}
        <Link to="/runs" search={{ status: "FAILED", task: run.task, error: errorPart(run.error_message ?? "") }}>
          Runs with the same error
        </Link>
        <Link to="/runs" search={{ status: "SUCCESS", job: run.job_id }}>
          Successes of the job
        </Link>
      </p>
    </section>
  );
}

/** The run goes on: the error is that of the attempt before. */
function whichOf(run: RunView): string {
  const failed = run.status === "RUNNING" ? run.attempt_number - 1 : run.attempt_number;
  const now = run.status === "RUNNING" ? `Attempt ${run.attempt_number} is running.` : "It will be tried again.";
  return `Attempt ${Math.max(1, failed)} of ${run.max_attempts} failed. ${now} Its error was:`;
}
