// Who was told of what: the history of messages, the rules, and the channels.
import { useSearch } from "@tanstack/react-router";
import { Page } from "../../ui/Page";
import { Tabs } from "../../ui/Tabs";
import { Channels } from "./Channels";
import { History } from "./History";
import { Rules } from "./Rules";

export function NotificationsPage() {
  const { tab } = useSearch({ from: "/notifications" });
  const shown = tab === "rules" || tab === "channels" ? tab : "history";
  return (
    <Page title="Notifications" lead="Who is told of failures, recoveries and other trouble, and what became of each message.">
      <Tabs
        label="Parts of notifications" name="tab" value={shown} clears={["status"]}
        tabs={[["history", "History"], ["rules", "Rules"], ["channels", "Channels"]]}
      />
      {shown === "rules" ? <Rules /> : shown === "channels" ? <Channels /> : <History />}
    </Page>
  );
}
