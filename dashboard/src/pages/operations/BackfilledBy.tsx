import { Link } from "@tanstack/react-router";
import { shortId } from "../../lib/format";

/** Links to the backfills that make up for missed fires. */
export function BackfilledBy({ ids }: { ids: string[] }) {
  if (ids.length === 0) return <span className="muted">no</span>;
  return (
    <>
      {ids.slice(0, 2).map((id) => (
        <Link key={id} to="/operations" search={{ tab: "backfills", backfill: id }} className="mono" title={`backfill ${id}`}>
          {shortId(id)}{" "}
        </Link>
      ))}
      {ids.length > 2 ? <span className="muted">and {ids.length - 2} more</span> : null}
    </>
  );
}
