// Sinks: where changes of jobs and runs are sent, and how far each is. Values of secret fields are never shown.
import { useQueryClient } from "@tanstack/react-query";
import { useSearch } from "@tanstack/react-router";
import { Pause, Pencil, Play, Plus, Send, Trash2 } from "lucide-react";
import { useState } from "react";
import { change, post } from "../../api/client";
import type { SinkList, SinkTested, SinkView } from "../../api/schema";
import { Button } from "../../ui/Button";
import { Confirm } from "../../ui/Dialog";
import { List } from "../../ui/List";
import { Card, Empty } from "../../ui/Page";
import type { Column } from "../../ui/Table";
import { Time } from "../../ui/Time";
import { say } from "../../ui/Toasts";
import { useKeyset } from "../../ui/useKeyset";
import { SinkForm } from "./SinkForm";

const PATH = "/v1/sinks";
const pathOf = (sink: SinkView): string => `${PATH}/${encodeURIComponent(sink.name)}`;
const stateOf = (sink: SinkView): string => (sink.paused ? "paused" : sink.failures > 0 ? "failing" : "ok");

export function Sinks() {
  const search = useSearch({ from: "/notifications" });
  const client = useQueryClient();
  const [testing, setTesting] = useState<SinkView | null>(null);
  const [turning, setTurning] = useState<SinkView | null>(null);
  const [deleting, setDeleting] = useState<SinkView | null>(null);
  const [editing, setEditing] = useState<SinkView | "new" | null>(null);
  const renew = (): void => void client.invalidateQueries({ queryKey: ["list", PATH] });
  const list = useKeyset<SinkList, SinkView>({
    path: PATH, query: {}, after: search.after, rows: (body) => body.sinks, next: (body) => body.next, id: (sink) => sink.name,
  });
  const test = async (): Promise<void> => {
    if (testing === null) return;
    const done = await post<SinkTested>(`${pathOf(testing)}:test`);
    if (!done.sent) throw new Error(`${testing.name} did not take a test event: ${done.error}`);
    say(`${testing.name} took a test event.`);
  };
  const turn = async (): Promise<void> => {
    if (turning === null) return;
    await post<SinkView>(`${pathOf(turning)}:${turning.paused ? "resume" : "pause"}`);
    say(`The sink ${turning.name} is ${turning.paused ? "resumed" : "paused"}.`);
    renew();
  };
  const remove = async (): Promise<void> => {
    if (deleting === null) return;
    await change("DELETE", pathOf(deleting), deleting.version);
    say(`The sink ${deleting.name} is deleted.`);
    renew();
  };
  const columns: Column<SinkView>[] = [
    { key: "name", head: "Sink", phone: "first", grow: true, cell: (sink) => <span title={sink.description ?? ""}>{sink.name}</span> },
    { key: "kind", head: "Kind", phone: "first", cell: (sink) => sink.kind },
    { key: "state", head: "State", cell: (sink) => stateOf(sink) },
    { key: "to", head: "To", grow: true, phone: "none", room: 1, cell: (sink) => [sink.url, sink.topic].filter(Boolean).join(" ") },
    { key: "waiting", head: "Waiting", cell: (sink) => sink.waiting.toLocaleString("en") },
    { key: "lag", head: "Lag", cell: (sink) => (sink.lag_s == null ? "" : `${Math.round(sink.lag_s)} s`) },
    { key: "position", head: "Position", phone: "none", room: 1, cell: (sink) => sink.position.toLocaleString("en") },
    { key: "sent", head: "Sent", phone: "none", room: 1, cell: (sink) => sink.sent.toLocaleString("en") },
    { key: "dropped", head: "Dropped", cell: (sink) => <span title={sink.dropped_at ?? ""}>{sink.dropped.toLocaleString("en")}</span> },
    { key: "error", head: "Last error", grow: true, cell: (sink) => (sink.error ? <>{sink.error} {sink.error_at ? <Time at={sink.error_at} /> : null}</> : "") },
    {
      key: "verbs", head: <span className="sr">Verbs</span>,
      cell: (sink) => (
        <>
          <Button needs="sinks.test" icon={<Send size={14} />} onClick={() => setTesting(sink)} aria-label={`Test ${sink.name}`}>Test</Button>{" "}
          <Button needs="sinks.pause" icon={sink.paused ? <Play size={14} /> : <Pause size={14} />} onClick={() => setTurning(sink)} aria-label={`${sink.paused ? "Resume" : "Pause"} ${sink.name}`}>{sink.paused ? "Resume" : "Pause"}</Button>{" "}
          <Button needs="sinks.put" icon={<Pencil size={14} />} onClick={() => setEditing(sink)} aria-label={`Edit ${sink.name}`}>Edit</Button>{" "}
          <Button needs="sinks.delete" icon={<Trash2 size={14} />} onClick={() => setDeleting(sink)} aria-label={`Delete ${sink.name}`}>Delete</Button>
        </>
      ),
    },
  ];
  return (
    <Card flush title="Sinks" aside={<Button kind="primary" needs="sinks.put" icon={<Plus size={14} />} onClick={() => setEditing("new")}>Create a sink</Button>}>
      <List
        label="Sinks" list={list} after={search.after} rowKey={(sink) => sink.name} columns={columns}
        empty={<Empty title="No sinks" command="mainspring sink set lake --kind webhook --address https://example.com/changes --secret-file key">A sink gets the changes of jobs and runs as CloudEvents: a webhook, Kafka, NATS, RabbitMQ or Redis.</Empty>}
      />
      {testing ? (
        <Confirm title={`Test the sink ${testing.name}?`} operation="sinks.test" verb="Send a test event" act={test} onClose={() => setTesting(null)} same={{ command: ["sink", "test", testing.name], method: "POST", path: `${pathOf(testing)}:test`, python: ["test_sink", testing.name] }}>
          <p>It gets one event of the type mainspring.sink.test now. The answer takes 40 seconds at most.</p>
        </Confirm>
      ) : null}
      {turning ? (
        <Confirm
          title={`${turning.paused ? "Resume" : "Pause"} the sink ${turning.name}?`} operation={turning.paused ? "sinks.resume" : "sinks.pause"}
          verb={turning.paused ? "Resume the sink" : "Pause the sink"} act={turn} onClose={() => setTurning(null)}
          same={{ command: ["sink", turning.paused ? "resume" : "pause", turning.name], method: "POST", path: `${pathOf(turning)}:${turning.paused ? "resume" : "pause"}`, python: [turning.paused ? "resume_sink" : "pause_sink", turning.name] }}
        >
          <p>{turning.paused ? "What has waited is sent." : "Changes wait until it is resumed, for as long as the sink keeps them."}</p>
        </Confirm>
      ) : null}
      {deleting ? (
        <Confirm title={`Delete the sink ${deleting.name}?`} operation="sinks.delete" verb="Delete the sink" danger act={remove} onClose={() => setDeleting(null)} onConflict={renew} same={{ command: ["sink", "delete", deleting.name], method: "DELETE", path: pathOf(deleting), python: ["delete_sink", deleting.name] }}>
          <p>What it has not sent yet is not sent: {deleting.waiting.toLocaleString("en")} changes.</p>
        </Confirm>
      ) : null}
      {editing ? <SinkForm sink={editing === "new" ? null : editing} onClose={() => setEditing(null)} renew={renew} /> : null}
    </Card>
  );
}
