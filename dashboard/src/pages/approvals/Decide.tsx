// The two verbs of an approval, where it is shown: in the list, and on the page of its run.
import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { Check, X } from "lucide-react";
import { useState } from "react";
import type { ApprovalView } from "../../api/schema";
import { useMay } from "../../api/session";
import { Button } from "../../ui/Button";
import { approvalsQuery, type Verb } from "./approvals";
import { DecideDialog, Details } from "./DecideDialog";

export function Decide({ approval, onDecided }: { approval: ApprovalView; onDecided?: () => void }) {
  const [verb, setVerb] = useState<Verb | null>(null);
  const may = useMay("approvals.approve");
  if (!may || !approval.may_decide) return null;
  const name = `${approval.approval} of ${approval.workflow_id}`;
  return (
    <>
      <Button kind="primary" icon={<Check size={14} />} onClick={() => setVerb("approve")} aria-label={`Approve ${name}`}>Approve</Button>{" "}
      <Button icon={<X size={14} />} onClick={() => setVerb("reject")} aria-label={`Reject ${name}`}>Reject</Button>
      {verb ? <DecideDialog approval={approval} verb={verb} onClose={() => setVerb(null)} onDecided={onDecided} /> : null}
    </>
  );
}

/** Whether a run with this task and this reason waits for a person. */
export function waitsForApproval(run: { task: string; status?: string | null; reason?: string | null }): boolean {
  return run.task === "mainspring.wait" && run.status === "WAITING" && (run.reason ?? "").startsWith("waiting for the approval");
}

/** On the page of a step that waits for a person. */
export function DecideStep({ run }: { run: string }) {
  const found = useQuery(approvalsQuery(true));
  const approval = found.data?.approvals.find((one) => one.run_id === run);
  if (approval === undefined) return found.data?.next ? <p><Link to="/approvals">All steps that wait for you</Link></p> : null;
  return (
    <>
      <Details value={approval.details} />
      <div><Decide approval={approval} /></div>
    </>
  );
}
