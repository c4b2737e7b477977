// Who was told of what: the history of messages, the rules, the channels, and the sinks of changes.
import { useSearch } from "@tanstack/react-router";
import { Page } from "../../ui/Page";
import { Tabs } from "../../ui/Tabs";
import { Channels } from "./Channels";
import { History } from "./History";
import { Rules } from "./Rules";
import { Sinks } from "./Sinks";

export function NotificationsPage() {
  const { tab } = useSearch({ from: "/notifications" });
  const shown = tab === "rules" || tab === "channels" || tab === "sinks" ? tab : "history";
  return (
    <Page title="Notifications" lead="Who is told of failures, recoveries and other trouble, and what became of each message.">
      <Tabs
        label="Parts of notifications" name="tab" value={shown} clears={["status"]}
        tabs={[["history", "History"], ["rules", "Rules"], ["channels", "Channels"], ["sinks", "Sinks"]]}
      />
      {shown === "rules" ? <Rules /> : shown === "channels" ? <Channels /> : shown === "sinks" ? <Sinks /> : <History />}
    </Page>
  );
}
