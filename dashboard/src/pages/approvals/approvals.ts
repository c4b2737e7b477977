// Steps that wait for a person: what is asked of who decides, and the answer.
import { queryOptions } from "@tanstack/react-query";
import { get, post } from "../../api/client";
import type { ApprovalFieldIn, ApprovalList, ApprovalView, Decided } from "../../api/schema";

export const PATH = "/v1/approvals";
const MOST = 200;

/** The newest approvals: those that the caller decides, or all. */
export const approvalsQuery = (everybody: boolean) =>
  queryOptions({
    queryKey: ["approvals", everybody],
    queryFn: ({ signal }) => get<ApprovalList>(PATH, { everybody: everybody || undefined, limit: MOST }, signal),
    refetchInterval: 5000,
  });

export type Verb = "approve" | "reject";
export type Typed = Record<string, string>;

export interface Decision {
  fields?: Record<string, unknown>;
  reason?: string;
}

/** The body of the request. A field that is left empty is left out. */
export function decisionOf(approval: ApprovalView, verb: Verb, typed: Typed, reason: string): Decision {
  const why = reason.trim() === "" ? {} : { reason: reason.trim() };
  if (verb === "reject") return why;
  const fields = Object.entries(approval.fields ?? {})
    .filter(([name]) => (typed[name] ?? "") !== "")
    .map(([name, field]) => [name, valueOf(field, typed[name] ?? "")] as const);
  return { ...(fields.length === 0 ? {} : { fields: Object.fromEntries(fields) }), ...why };
}

/** What is no value of the type goes to the server as it is typed, which says so. */
function valueOf(field: ApprovalFieldIn, text: string): unknown {
  const option = field.options?.find((one) => String(one) === text);
  if (option !== undefined) return option;
  if (field.type === "boolean") return text === "true";
  if (field.type === "integer") return Number.isSafeInteger(Number(text)) ? Number(text) : text;
  if (field.type === "number") return Number.isFinite(Number(text)) ? Number(text) : text;
  return text;
}

export async function decide(approval: ApprovalView, verb: Verb, decision: Decision): Promise<Decided> {
  return post<Decided>(`${PATH}/${approval.run_id}:${verb}`, decision);
}
