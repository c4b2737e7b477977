// What is wrong with what is typed, by the path of its field.
import { Refused } from "../../api/client";
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
