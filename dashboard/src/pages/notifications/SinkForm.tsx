// Creates a sink, or replaces its settings. A secret field is empty: no answer has its value.
import { useState } from "react";
import type { SinkKind, SinkView } from "../../api/schema";
import { Confirm } from "../../ui/Dialog";
import { Field, Select } from "../../ui/Field";
import { say } from "../../ui/Toasts";
import { asCommand, listed, store, useProblems, written } from "./settings";

type Values = Record<string, string>;
type SinkField = { name: string; label: string; needed?: true; secret?: true; help?: string; placeholder?: string };

const USER: SinkField = { name: "user", label: "User" };
const PASSWORD: SinkField = { name: "password", label: "Password", secret: true };
const url = (placeholder: string): SinkField => ({ name: "url", label: "Address", needed: true, placeholder, help: "without a user and a password" });
const topic = (label: string): SinkField => ({ name: "topic", label, needed: true });
// The server checks them as well.
const KINDS: Record<SinkKind, SinkField[]> = {
  webhook: [
    { name: "url", label: "Address", needed: true, placeholder: "https://example.com/changes" },
    { name: "secret", label: "Key", needed: true, secret: true, help: "it signs each request" },
    { name: "batch", label: "Events in a request", help: "1 to 500; empty: one" },
  ],
  kafka: [url("kafka://a.example.com:9092,b.example.com:9092"), topic("Topic"), USER, PASSWORD],
  nats: [url("nats://nats.example.com:4222"), topic("Subject"), USER, PASSWORD, { name: "token", label: "Token", secret: true, help: "in place of a user" }],
  rabbitmq: [url("amqps://rabbit.example.com/vhost"), topic("Routing key"), { name: "exchange", label: "Exchange", help: "empty: the routing key is the queue" }, USER, PASSWORD],
  redis: [url("rediss://redis.example.com:6379/0"), topic("Stream"), USER, PASSWORD],
};
const FILTER: SinkField[] = [
  { name: "on", label: "Changes", placeholder: "run, job.paused, workflow_run.failed", help: "with commas; empty: all" },
  { name: "queue", label: "Queue" },
  { name: "task", label: "Task" },
  { name: "job", label: "Job" },
  { name: "labels", label: "Labels", placeholder: "team=data", help: "with commas" },
  { name: "keep", label: "Keeps", placeholder: "7d", help: "how long changes wait for the receiver; empty: 7 days" },
  { name: "keep_size", label: "Keeps at most", placeholder: "256MiB", help: "empty: 256 MiB" },
  { name: "description", label: "Description" },
];

export function SinkForm({ sink, onClose, renew }: { sink: SinkView | null; onClose: () => void; renew: () => void }) {
  const [name, setName] = useState(sink?.name ?? "");
  const [kind, setKind] = useState<SinkKind>(sink?.kind ?? "webhook");
  const [values, setValues] = useState<Values>(() => valuesOf(sink));
  const problems = useProblems();
  const body = bodyOf(kind, values);
  const path = `/v1/sinks/${encodeURIComponent(name.trim())}`;
  const same = asCommand(path, "set_sink", name.trim(), body, KINDS[kind]);
  const act = problems.watch(async () => {
    await store(path, "sink", sink?.version ?? null, body);
    say(`The sink ${name.trim()} is ${sink ? "changed" : "created"}. Test it.`);
    renew();
  });
  return (
    <Confirm title={sink ? `Edit the sink ${sink.name}` : "Create a sink"} operation="sinks.put" verb={sink ? "Save" : "Create"} act={act} onClose={onClose} onConflict={renew} same={same}>
      {sink ? null : <Field label="Name" required placeholder="lake" problem={problems.of("name")} value={name} onChange={(event) => setName(event.target.value)} />}
      <Select label="Kind" value={kind} problem={problems.of("kind")} options={Object.keys(KINDS).map((one) => [one, one])} onChange={(event) => setKind(event.target.value as SinkKind)} />
      {[...KINDS[kind], ...FILTER].map((field) => {
        const kept = field.secret === true && sink?.kind === kind && (sink.secrets ?? []).includes(field.name);
        const help = kept ? "it is set; empty: it stays, unless the kind, the address or the user changes" : field.secret ? `${field.help ? `${field.help}; ` : ""}it is never shown again` : field.help;
        return (
          <Field
            key={field.name} label={field.label} help={help} placeholder={field.placeholder} problem={problems.of(field.name)} required={field.needed === true && !kept}
            {...(field.secret ? { type: "password", autoComplete: "off" } : {})} value={values[field.name] ?? ""}
            onChange={(event) => setValues({ ...values, [field.name]: event.target.value })}
          />
        );
      })}
    </Confirm>
  );
}

function valuesOf(sink: SinkView | null): Values {
  if (sink === null) return {};
  const labels = Object.entries(sink.labels ?? {}).map(([key, value]) => `${key}=${value}`);
  const found: Record<string, unknown> = { ...sink, on: (sink.on ?? []).join(", "), labels: labels.join(", "), keep: written(sink.keep_s), keep_size: sink.keep_bytes };
  return Object.fromEntries(Object.entries(found).filter(([, value]) => value !== null && value !== undefined).map(([name, value]) => [name, String(value)]));
}

/** Only the fields of the kind: a value that was typed for another kind is not sent. */
function bodyOf(kind: SinkKind, values: Values): Record<string, unknown> {
  const body: Record<string, unknown> = { kind };
  for (const { name } of [...KINDS[kind], ...FILTER]) {
    const text = (values[name] ?? "").trim();
    if (text === "") continue;
    if (name === "on") body[name] = listed(text);
    else if (name === "labels") body[name] = Object.fromEntries(listed(text).map((one) => [one.split("=", 1)[0] ?? "", one.slice(one.indexOf("=") + 1)]));
    else body[name] = (name === "batch" || name === "keep_size") && /^\d+$/.test(text) ? Number(text) : text;
  }
  return body;
}
