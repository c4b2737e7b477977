import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { plural } from "../../lib/format";
import { approvalsQuery } from "../approvals/approvals";

/** Whether a step of a workflow waits for a decision of the caller. */
export function WaitingLine() {
  const found = useQuery({ ...approvalsQuery(false), refetchInterval: 15_000 });
  const number = found.data?.approvals.length ?? 0;
  if (number === 0) return null;
  return (
    <p>
      <Link to="/approvals">
        {plural(number, "step")}
        {found.data?.next ? " or more" : ""} {number === 1 ? "waits" : "wait"} for you
      </Link>
    </p>
  );
}
