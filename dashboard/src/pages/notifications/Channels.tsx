// Channels: where people are told something. Values of secret fields are never shown.
import { useQueryClient } from "@tanstack/react-query";
import { useSearch } from "@tanstack/react-router";
import { Pencil, Plus, Send, Trash2 } from "lucide-react";
import { useState } from "react";
import { change, post } from "../../api/client";
import type { ChannelList, ChannelTested, ChannelView } from "../../api/schema";
import { Button } from "../../ui/Button";
import { Confirm } from "../../ui/Dialog";
import { List } from "../../ui/List";
import { Card, Empty } from "../../ui/Page";
import type { Column } from "../../ui/Table";
import { Time } from "../../ui/Time";
import { say } from "../../ui/Toasts";
import { useKeyset } from "../../ui/useKeyset";
import { ChannelForm } from "./ChannelForm";

const PATH = "/v1/channels";

export function Channels() {
  const search = useSearch({ from: "/notifications" });
  const client = useQueryClient();
  const [testing, setTesting] = useState<ChannelView | null>(null);
  const [deleting, setDeleting] = useState<ChannelView | null>(null);
  const [editing, setEditing] = useState<ChannelView | "new" | null>(null);
  const renew = (): void => void client.invalidateQueries({ queryKey: ["list", PATH] });
  const list = useKeyset<ChannelList, ChannelView>({
    path: PATH, query: {}, after: search.after, rows: (body) => body.channels, next: (body) => body.next, id: (channel) => channel.name,
  });
  const test = async (): Promise<void> => {
    if (testing === null) return;
    const done = await post<ChannelTested>(`${PATH}/${encodeURIComponent(testing.name)}:test`);
    if (!done.sent) throw new Error(`${testing.name} did not take a test message: ${done.error}`);
    say(`${testing.name} took a test message.`);
  };
  const columns: Column<ChannelView>[] = [
    { key: "name", head: "Channel", phone: "first", grow: true, cell: (channel) => <span title={channel.description ?? ""}>{channel.name}</span> },
    { key: "kind", head: "Kind", phone: "first", cell: (channel) => channel.kind },
    { key: "to", head: "To", grow: true, cell: (channel) => (channel.to ?? []).join(", ") || channel.url || channel.chat_id || "" },
    { key: "secrets", head: "Secrets", phone: "none", room: 1, cell: (channel) => (channel.secrets ?? []).join(", ") },
    { key: "updated", head: "Changed", phone: "none", room: 2, cell: (channel) => <Time at={channel.updated_at} /> },
    {
      key: "verbs", head: <span className="sr">Verbs</span>,
      cell: (channel) => (
        <>
          <Button needs="channels.test" icon={<Send size={14} />} onClick={() => setTesting(channel)} aria-label={`Test ${channel.name}`}>Test</Button>{" "}
          <Button needs="channels.put" icon={<Pencil size={14} />} onClick={() => setEditing(channel)} aria-label={`Edit ${channel.name}`}>Edit</Button>{" "}
          <Button needs="channels.delete" icon={<Trash2 size={14} />} onClick={() => setDeleting(channel)} aria-label={`Delete ${channel.name}`}>Delete</Button>
        </>
      ),
    },
  ];
  const remove = async (): Promise<void> => {
    if (deleting === null) return;
    await change("DELETE", `${PATH}/${encodeURIComponent(deleting.name)}`, deleting.version);
    say(`The channel ${deleting.name} is deleted.`);
    renew();
  };
  return (
    <Card flush title="Channels" aside={<Button kind="primary" needs="channels.put" icon={<Plus size={14} />} onClick={() => setEditing("new")}>Create a channel</Button>}>
      <List
        label="Channels" list={list} after={search.after} rowKey={(channel) => channel.name} columns={columns}
        empty={<Empty title="No channels" command="mainspring channel set oncall --kind slack --secret-file slack-url">A channel is where people are told something: mail, chat, a pager, a webhook.</Empty>}
      />
      {deleting ? (
        <Confirm title={`Delete the channel ${deleting.name}?`} operation="channels.delete" verb="Delete the channel" danger act={remove} onClose={() => setDeleting(null)} onConflict={renew} same={{ command: ["channel", "delete", deleting.name], method: "DELETE", path: `${PATH}/${encodeURIComponent(deleting.name)}`, python: ["delete_channel", deleting.name] }}>
          <p>Messages that wait for it are given up. A channel that a rule uses is not deleted.</p>
        </Confirm>
      ) : null}
      {testing ? (
        <Confirm title={`Test the channel ${testing.name}?`} operation="channels.test" verb="Send a test message" act={test} onClose={() => setTesting(null)} same={{ command: ["channel", "test", testing.name], method: "POST", path: `${PATH}/${encodeURIComponent(testing.name)}:test`, python: ["test_channel", testing.name] }}>
          <p>It gets one message now, which says that it is a test. The answer takes 30 seconds at most.</p>
        </Confirm>
      ) : null}
      {editing ? <ChannelForm channel={editing === "new" ? null : editing} onClose={() => setEditing(null)} renew={renew} /> : null}
    </Card>
  );
}
