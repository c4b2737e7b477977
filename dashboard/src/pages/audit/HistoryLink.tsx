import { Link } from "@tanstack/react-router";
import { useMay } from "../../api/session";

/** To what was changed of one thing, for those who may read it. */
export function HistoryLink({ kind, id, name }: { kind: string; id: string; name: string }) {
  if (!useMay("audit.list")) return null;
  return (
    <Link to="/audit" search={{ kind, id }} aria-label={`History of ${name}`}>
      History
    </Link>
  );
}
