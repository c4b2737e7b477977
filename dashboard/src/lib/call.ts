// What a job of a kind such as http runs. The field of the job has the name of the kind, which is the name of its task.
import type { JobView } from "../api/schema";

/** Objects of a job that are not the call of a kind: an application may have a task of the same name. */
const OTHERS = [
  "payload", "retry", "misfire", "labels", "env", "limits", "required_labels", "latest_run", "circuit_breaker", "unique", "dst",
] as const satisfies readonly (keyof JobView)[];

export function callOf(job: JobView): Record<string, unknown> | null {
  const call = (job as unknown as Record<string, unknown>)[job.task];
  const isCall = typeof call === "object" && call !== null && !Array.isArray(call);
  return isCall && !(OTHERS as readonly string[]).includes(job.task) ? (call as Record<string, unknown>) : null;
}
