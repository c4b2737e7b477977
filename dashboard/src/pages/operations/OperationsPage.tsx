// Work on many things: verbs on all that a filter matches, and backfills.
import { useSearch } from "@tanstack/react-router";
import { Page } from "../../ui/Page";
import { Tabs } from "../../ui/Tabs";
import { Backfills } from "./Backfills";
import { BulkOperations } from "./BulkOperations";

export function OperationsPage() {
  const { tab } = useSearch({ from: "/operations" });
  const shown = tab === "backfills" ? "backfills" : "verbs";
  return (
    <Page title="Operations" lead="Work on many things at once: verbs on all that a filter matches, and fires of the past that are made up for.">
      <Tabs
        label="Kinds of operations" name="tab" value={shown} tabs={[["verbs", "Bulk verbs"], ["backfills", "Backfills"]]}
        clears={["op", "backfill", "job", "state"]}
      />
      {shown === "backfills" ? <Backfills /> : <BulkOperations />}
    </Page>
  );
}
