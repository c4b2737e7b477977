// The steps that decided how long the run took: from the step that ended last, back to the parent that it waited for.
import type { StepRunView } from "../../api/schema";

export function criticalPath(steps: readonly StepRunView[], edges: readonly (readonly string[])[]): ReadonlySet<string> {
  const ended = new Map(steps.flatMap((step) => (step.end_time ? [[step.name, Date.parse(step.end_time)] as const] : [])));
  const parents = new Map<string, string[]>();
  for (const [parent = "", child = ""] of edges) parents.set(child, [...(parents.get(child) ?? []), parent]);
  const path = new Set<string>();
  let name = latest([...ended.keys()], ended);
  while (name !== undefined && !path.has(name)) {
    path.add(name);
    name = latest(parents.get(name) ?? [], ended);
  }
  return path;
}

function latest(names: string[], ended: ReadonlyMap<string, number>): string | undefined {
  const known = names.filter((name) => ended.has(name));
  return known.reduce<string | undefined>((best, name) => (best === undefined || (ended.get(name) ?? 0) > (ended.get(best) ?? 0) ? name : best), undefined);
}

const NICE = [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21_600, 43_200, 86_400];
const MOST_TICKS = 6;

/** Where an axis has its marks, in seconds from the start. */
export function ticksOf(seconds: number): number[] {
  const step = NICE.find((one) => seconds / one <= MOST_TICKS) ?? Math.ceil(seconds / MOST_TICKS / 86_400) * 86_400;
  return Array.from({ length: Math.floor(seconds / step + 1e-9) + 1 }, (_, index) => index * step);
}
