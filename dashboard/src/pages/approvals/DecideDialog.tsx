// Approve, with what is asked for, or reject, with a reason.
import { useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import type { ApprovalFieldIn, ApprovalView } from "../../api/schema";
import type { Same } from "../../ui/AsCommand";
import { Confirm } from "../../ui/Dialog";
import { Field, Select } from "../../ui/Field";
import { Facts } from "../../ui/Page";
import { Json } from "../../ui/Json";
import { Time } from "../../ui/Time";
import { say } from "../../ui/Toasts";
import { type Decision, decide, decisionOf, PATH, type Typed, type Verb } from "./approvals";

const TITLES: Record<Verb, string> = { approve: "Approve", reject: "Reject" };

export function DecideDialog({ approval, verb, onClose, onDecided }: { approval: ApprovalView; verb: Verb; onClose: () => void; onDecided?: (() => void) | undefined }) {
  const [typed, setTyped] = useState<Typed>({});
  const [reason, setReason] = useState("");
  const client = useQueryClient();
  const decision = decisionOf(approval, verb, typed, reason);
  const act = async (): Promise<void> => {
    try {
      await decide(approval, verb, decision);
      say(verb === "approve" ? "It is approved: what follows starts." : "It is rejected: the step has failed.");
    } finally {
      // Also if somebody else was faster.
      const shown = [["approvals"], ["list", PATH], ["workflow-run"], ["run", approval.run_id]];
      await Promise.all(shown.map((queryKey) => client.invalidateQueries({ queryKey })));
      onDecided?.();
    }
  };
  return (
    <Confirm title={`${TITLES[verb]} ${approval.approval}?`} operation={`approvals.${verb}`} verb={TITLES[verb]} danger={verb === "reject"} act={act} onClose={onClose} same={sameOf(approval, verb, decision)}>
      <p className="wrap">
        The step {approval.step} of the workflow {approval.workflow_id} has waited since <Time at={approval.waits_since} />.{" "}
        {verb === "approve" ? "It succeeds, and what follows it starts." : "It fails, and what follows it is skipped by its rules."} This cannot be undone.
      </p>
      <Details value={approval.details} />
      {verb === "approve"
        ? Object.entries(approval.fields ?? {}).map(([name, field]) => (
            <Input key={name} name={name} field={field} value={typed[name] ?? ""} onChange={(value) => setTyped((old) => ({ ...old, [name]: value }))} />
          ))
        : null}
      <Field label="Reason" maxLength={1000} help="it is kept with the decision" value={reason} onChange={(event) => setReason(event.target.value)} />
    </Confirm>
  );
}

/** What the workflow says of it. */
export function Details({ value }: { value: unknown }) {
  if (value === null || value === undefined) return null;
  if (typeof value !== "object" || Array.isArray(value)) return <Json value={value} label="details" />;
  return <Facts rows={Object.entries(value).map(([name, one]) => [name, typeof one === "string" ? one : JSON.stringify(one)])} />;
}

const YES_OR_NO: [string, string][] = [["true", "Yes"], ["false", "No"]];

function Input({ name, field, value, onChange }: { name: string; field: ApprovalFieldIn; value: string; onChange: (value: string) => void }) {
  const required = field.required !== false;
  const label = field.title ?? name;
  const frame = { label, required, value, ...(required ? {} : { help: "may be left out" }) };
  const options = field.type === "boolean" ? YES_OR_NO : field.options?.map((one): [string, string] => [String(one), String(one)]);
  if (options) return <Select {...frame} options={[["", required ? "choose" : "none"], ...options]} onChange={(event) => onChange(event.target.value)} />;
  const numeric = field.type === "integer" || field.type === "number";
  const more = numeric ? { type: "number", step: field.type === "integer" ? 1 : "any" } : {};
  return <Field {...frame} {...more} onChange={(event) => onChange(event.target.value)} />;
}

function sameOf(approval: ApprovalView, verb: Verb, decision: Decision): Same {
  const { fields = {}, reason } = decision;
  const words = Object.entries(fields).flatMap(([name, value]) => ["--field", `${name}=${typeof value === "string" && !isJson(value) ? value : JSON.stringify(value)}`]);
  return {
    command: ["approval", verb, approval.run_id, ...words, ...(reason === undefined ? [] : ["--reason", reason])],
    method: "POST", path: `${PATH}/${approval.run_id}:${verb}`, body: decision,
    python: verb === "approve" && decision.fields ? [verb, approval.run_id, fields] : [verb, approval.run_id],
    ...(reason === undefined ? {} : { named: { reason } }),
  };
}

/** The command reads a value as JSON, if it is JSON. */
function isJson(text: string): boolean {
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}
