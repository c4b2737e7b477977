// What the job does, in words first, then whole.
import { Link } from "@tanstack/react-router";
import type { ReactNode } from "react";
import type { JobView } from "../../api/schema";
import { callOf } from "../../lib/call";
import { duration } from "../../lib/format";
import { Copy } from "../../ui/Copy";
import { Card, Facts } from "../../ui/Page";
import { Json } from "../../ui/Json";
import { Time } from "../../ui/Time";
import styles from "./JobPage.module.css";

export function Definition({ job }: { job: JobView }) {
  const labels = Object.entries(job.labels).map(([key, value]) => `${key}=${value}`).join(", ");
  const rows: [string, ReactNode][] = [
    ["Task", <code key="task">{job.task}</code>],
    ["Command", job.command === null ? "" : <code key="command">{[job.command].flat().join(" ")}</code>],
    ...Object.entries(callOf(job) ?? {}).map(([name, value]): [string, ReactNode] => [
      `${job.task}: ${name}`, <code key={name}>{typeof value === "string" ? value : JSON.stringify(value)}</code>,
    ]),
    ["Schedule", job.schedule],
    ["Zone", job.timezone ?? ""],
    ["Calendar", job.calendar ? <Link to="/calendars/$calendar" params={{ calendar: job.calendar }}>{job.calendar}</Link> : ""],
    ["Queue", job.queue],
    ["Priority", job.priority],
    ["Timeout", duration(job.timeout)],
    ["Attempts", `${job.retry.max_attempts}, ${job.retry.backoff} from ${duration(job.retry.base)} to ${duration(job.retry.cap)}`],
    ["When late", `misfire ${job.misfire.policy}`],
    ["When one is alive", `overlap ${job.overlap}`],
    ["Delivery", job.delivery.replaceAll("_", " ")],
    ["Owner", job.owner ?? ""],
    ["Labels", labels],
    ["Description", job.description ?? ""],
    ["Declared by", job.declared_by ?? ""],
    ["Created by", job.created_by?.name ?? ""],
    ["Owned by files", job.owned_by ? `${job.owned_by.owner}${job.owned_by.source ? ` (${job.owned_by.source})` : ""}` : ""],
    ["Created", <Time key="created" at={job.created_at} focusable />],
    ["Changed", <Time key="changed" at={job.updated_at} focusable />],
    ["Version", `${job.version}, generation ${job.generation}`],
  ];
  return (
    <div className={styles.stack}>
      <Card title="Definition" aside={<Copy text={JSON.stringify(job, null, 2)} label="Copy the job as JSON" />}>
        <Facts rows={rows} />
      </Card>
      <Card title="Payload">
        <Json value={job.payload} label="payload" />
      </Card>
    </div>
  );
}
