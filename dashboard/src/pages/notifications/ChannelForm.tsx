// Creates a channel, or replaces its settings. A secret field is empty: no answer has its value.
import { useState } from "react";
import type { ChannelKind, ChannelView } from "../../api/schema";
import { Confirm } from "../../ui/Dialog";
import { Field, Select } from "../../ui/Field";
import { say } from "../../ui/Toasts";
import { type ChannelField, KINDS } from "./kinds";
import { asCommand, listed, store, useProblems } from "./settings";

type Values = Record<string, string>;
const NUMBERS = new Set(["port", "log_lines"]);

export function ChannelForm({ channel, onClose, renew }: { channel: ChannelView | null; onClose: () => void; renew: () => void }) {
  const [name, setName] = useState(channel?.name ?? "");
  const [kind, setKind] = useState<ChannelKind>(channel?.kind ?? "slack");
  const [values, setValues] = useState<Values>(() => valuesOf(channel));
  const problems = useProblems();
  const body = bodyOf(kind, values);
  const path = `/v1/channels/${encodeURIComponent(name.trim())}`;
  const same = asCommand(path, "set_channel", name.trim(), body, KINDS[kind]);
  const act = problems.watch(async () => {
    await store(path, "channel", channel?.version ?? null, body);
    say(`The channel ${name.trim()} is ${channel ? "changed" : "created"}. Test it.`);
    renew();
  });
  const type = (field: string) => (event: { target: { value: string } }): void => setValues({ ...values, [field]: event.target.value });
  return (
    <Confirm title={channel ? `Edit the channel ${channel.name}` : "Create a channel"} operation="channels.put" verb={channel ? "Save" : "Create"} act={act} onClose={onClose} onConflict={renew} same={same}>
      {channel ? null : <Field label="Name" required placeholder="oncall" problem={problems.of("name")} value={name} onChange={(event) => setName(event.target.value)} />}
      <Select label="Kind" value={kind} problem={problems.of("kind")} options={Object.keys(KINDS).map((one) => [one, one])} onChange={(event) => setKind(event.target.value as ChannelKind)} />
      {KINDS[kind].map((field) => (
        <Setting key={field.name} field={field} kept={isKept(field, kind, channel)} problem={problems.of(field.name)} value={values[field.name] ?? ""} onChange={type(field.name)} />
      ))}
      <Field label="Lines of output" help="so many last lines of a run are in messages; empty: none" problem={problems.of("log_lines")} value={values["log_lines"] ?? ""} onChange={type("log_lines")} />
      <Field label="Description" problem={problems.of("description")} value={values["description"] ?? ""} onChange={type("description")} />
    </Confirm>
  );
}

interface SettingProps {
  field: ChannelField;
  kept: boolean;
  problem: string | undefined;
  value: string;
  onChange: (event: { target: { value: string } }) => void;
}

function Setting({ field, kept, problem, value, onChange }: SettingProps) {
  const input = { label: field.label, problem, value, onChange };
  if (field.choices) return <Select {...input} options={[["", "the usual one"], ...field.choices.map((one): [string, string] => [one, one])]} />;
  const help = kept ? "it is set; empty: it stays, unless the kind or the address changes" : field.secret ? `${field.help ? `${field.help}; ` : ""}it is never shown again` : field.help;
  const secret = field.secret ? { type: "password", autoComplete: "off" } : {};
  return <Field {...input} {...secret} help={help} required={field.needed === true && !kept} placeholder={field.placeholder} />;
}

function isKept(field: ChannelField, kind: ChannelKind, channel: ChannelView | null): boolean {
  return field.secret === true && channel?.kind === kind && (channel.secrets ?? []).includes(field.name);
}

function valuesOf(channel: ChannelView | null): Values {
  if (channel === null) return {};
  const named = Object.entries(channel).filter(([, value]) => value !== null);
  return Object.fromEntries(named.map(([name, value]) => [name, Array.isArray(value) ? value.join(", ") : String(value)]));
}

/** Only the fields of the kind: a value that was typed for another kind is not sent. */
function bodyOf(kind: ChannelKind, values: Values): Record<string, unknown> {
  const fields: ChannelField[] = [...KINDS[kind], { name: "log_lines", label: "" }, { name: "description", label: "" }];
  const given = fields.filter((field) => (values[field.name] ?? "").trim() !== "");
  const value = ({ name, list }: ChannelField): unknown => {
    const text = (values[name] ?? "").trim();
    return list ? listed(text) : NUMBERS.has(name) && Number.isInteger(Number(text)) ? Number(text) : text;
  };
  return { kind, ...Object.fromEntries(given.map((field) => [field.name, value(field)])) };
}
