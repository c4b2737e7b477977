// The members of a mapped step. When it has ended the server knows how many there were, no longer how each ended.
import type { StepRunView } from "../../api/schema";
import { plural } from "../../lib/format";

type Mapped = Pick<StepRunView, "map" | "end_time">;

export function isCounted(step: Mapped): boolean {
  const map = step.map;
  return !!map && (!step.end_time || map.succeeded + map.failed + map.skipped === map.total);
}

export function membersOf(step: Mapped): string {
  const map = step.map;
  if (!map) return "";
  if (!isCounted(step)) return plural(map.total ?? 0, "member");
  return `${map.succeeded + map.failed + map.skipped} of ${map.total ?? "?"}${map.failed > 0 ? `, ${map.failed} failed` : ""}`;
}
