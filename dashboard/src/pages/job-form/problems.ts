// What is wrong with what is typed, by the path of its field.
import { post, Refused } from "../../api/client";
import type { FieldProblem } from "../../api/schema";

export type Problems = Record<string, string>;

export function problemsOf(error: unknown): Problems {
  if (!(error instanceof Refused)) return {};
  const { field, detail, hint, errors = [] } = error.problem;
  return { ...byField(errors), ...(field ? { [field]: hint ? `${detail}. ${hint}` : detail } : {}) };
}

/** The first problem of each field. */
export function byField(problems: readonly FieldProblem[]): Problems {
  const found: Problems = {};
  for (const one of problems) found[one.field] ??= one.hint ? `${one.detail}. ${one.hint}` : one.detail;
  return found;
}

const MOST = 8;
const VALID: Record<string, unknown> = { command: "true", task: "shell" };

/** The server names the first problem. What else is wrong is found by asking about the rest of the request. */
export async function allProblems(error: unknown, request: Record<string, unknown>): Promise<Problems> {
  let found = problemsOf(error);
  const rest = { ...request };
  const seen = new Set<string>();
  for (let refused = error; refused instanceof Refused && refused.problem.field && seen.size < MOST; ) {
    const name = refused.problem.field.split(/[.[]/)[0] ?? "";
    if (seen.has(name) || !(name in rest)) break;
    seen.add(name);
    if (name in VALID) rest[name] = VALID[name];
    else delete rest[name];
    refused = await post("/v1/jobs:validate", rest).then(() => null, (problem: unknown) => problem);
    found = { ...problemsOf(refused), ...found };
  }
  return found;
}
