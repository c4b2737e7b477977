// Rules: who is told of what.
import { useQueryClient } from "@tanstack/react-query";
import { useSearch } from "@tanstack/react-router";
import { Bell, BellOff, Pencil, Plus, Trash2 } from "lucide-react";
import { useState } from "react";
import { change, post } from "../../api/client";
import type { RuleList, RuleView } from "../../api/schema";
import { Button } from "../../ui/Button";
import { Confirm } from "../../ui/Dialog";
import { List } from "../../ui/List";
import { Field } from "../../ui/Field";
import { Card, Empty } from "../../ui/Page";
import type { Column } from "../../ui/Table";
import { Time } from "../../ui/Time";
import { say } from "../../ui/Toasts";
import { useKeyset } from "../../ui/useKeyset";
import { RuleForm } from "./RuleForm";
import { useProblems } from "./settings";

const PATH = "/v1/rules";

function scopeOf(rule: RuleView): string {
  const named = (["job", "task", "queue"] as const).filter((name) => rule[name]).map((name) => `${name} ${rule[name]}`);
  const labels = Object.entries(rule.labels ?? {}).map(([name, value]) => `${name}=${value}`);
  return [...named, ...labels].join(", ") || "everything";
}

export function Rules() {
  const search = useSearch({ from: "/notifications" });
  const client = useQueryClient();
  const [muting, setMuting] = useState<RuleView | null>(null);
  const [editing, setEditing] = useState<RuleView | "new" | null>(null);
  const [deleting, setDeleting] = useState<RuleView | null>(null);
  const renew = (): void => void client.invalidateQueries({ queryKey: ["list", PATH] });
  const list = useKeyset<RuleList, RuleView>({
    path: PATH, query: {}, after: search.after, rows: (body) => body.rules, next: (body) => body.next, id: (rule) => rule.name,
  });
  const columns: Column<RuleView>[] = [
    { key: "name", head: "Rule", phone: "first", grow: true, cell: (rule) => <span title={rule.description ?? ""}>{rule.name}</span> },
    { key: "on", head: "On", phone: "first", grow: true, cell: (rule) => rule.on.join(", ") },
    { key: "of", head: "Of", cell: scopeOf },
    { key: "to", head: "To", cut: true, cell: (rule) => <span title={rule.to.join(", ")}>{rule.to.join(", ")}</span> },
    { key: "muted", head: "Muted until", phone: "none", room: 1, cell: (rule) => <Time at={rule.muted_until ?? null} /> },
    {
      key: "verbs", head: <span className="sr">Verbs</span>,
      cell: (rule) => (
        <>
          <Button needs="rules.mute" icon={rule.muted_until ? <Bell size={14} /> : <BellOff size={14} />} onClick={() => setMuting(rule)} aria-label={`${rule.muted_until ? "Unmute" : "Mute"} ${rule.name}`}>{rule.muted_until ? "Unmute" : "Mute"}</Button>{" "}
          <Button needs="rules.put" icon={<Pencil size={14} />} onClick={() => setEditing(rule)} aria-label={`Edit ${rule.name}`}>Edit</Button>{" "}
          <Button needs="rules.delete" icon={<Trash2 size={14} />} onClick={() => setDeleting(rule)} aria-label={`Delete ${rule.name}`}>Delete</Button>
        </>
      ),
    },
  ];
  const remove = async (): Promise<void> => {
    if (deleting === null) return;
    await change("DELETE", `${PATH}/${encodeURIComponent(deleting.name)}`, deleting.version);
    say(`The rule ${deleting.name} is deleted.`);
    renew();
  };
  return (
    <Card flush title="Rules" aside={<Button kind="primary" needs="rules.put" icon={<Plus size={14} />} onClick={() => setEditing("new")}>Create a rule</Button>}>
      <List
        label="Rules" list={list} after={search.after} rowKey={(rule) => rule.name} columns={columns}
        empty={<Empty title="No rules" command="mainspring rule set all-failures --on failure,recovered --to oncall">A rule says who is told of what. Jobs can have rules of their own.</Empty>}
      />
      {deleting ? (
        <Confirm title={`Delete the rule ${deleting.name}?`} operation="rules.delete" verb="Delete the rule" danger act={remove} onClose={() => setDeleting(null)} onConflict={renew} same={{ command: ["rule", "delete", deleting.name], method: "DELETE", path: `${PATH}/${encodeURIComponent(deleting.name)}`, python: ["delete_rule", deleting.name] }}>
          <p>What it has not told yet is not told.</p>
        </Confirm>
      ) : null}
      {muting ? <Mute rule={muting} onClose={() => setMuting(null)} renew={renew} /> : null}
      {editing ? <RuleForm rule={editing === "new" ? null : editing} onClose={() => setEditing(null)} renew={renew} /> : null}
    </Card>
  );
}

function Mute({ rule, onClose, renew }: { rule: RuleView; onClose: () => void; renew: () => void }) {
  const [duration, setDuration] = useState("1h");
  const problems = useProblems();
  const path = `${PATH}/${encodeURIComponent(rule.name)}`;
  const mute = problems.watch(async () => {
    await post(`${path}:mute`, { for: duration.trim() });
    say(`The rule ${rule.name} tells nothing for ${duration.trim()}.`);
    renew();
  });
  const unmute = async (): Promise<void> => {
    await post(`${path}:unmute`);
    say(`The rule ${rule.name} tells again.`);
    renew();
  };
  return rule.muted_until ? (
    <Confirm title={`Unmute the rule ${rule.name}?`} operation="rules.unmute" verb="Unmute the rule" act={unmute} onClose={onClose} same={{ command: ["rule", "unmute", rule.name], method: "POST", path: `${path}:unmute`, python: ["unmute_rule", rule.name] }}>
      <p>It tells again, also what has happened meanwhile and has not recovered.</p>
    </Confirm>
  ) : (
    <Confirm title={`Mute the rule ${rule.name}?`} operation="rules.mute" verb="Mute the rule" act={mute} onClose={onClose} same={{ command: ["rule", "mute", rule.name, "--for", duration.trim()], method: "POST", path: `${path}:mute`, body: { for: duration.trim() }, python: ["mute_rule", rule.name, duration.trim()] }}>
      <p>It tells nothing for so long. Then it tells what has not recovered.</p>
      <Field label="For" required placeholder="2h" problem={problems.of("for")} value={duration} onChange={(event) => setDuration(event.target.value)} />
    </Confirm>
  );
}
