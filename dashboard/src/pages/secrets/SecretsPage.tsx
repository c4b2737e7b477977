// Secrets: names, versions and who uses them. No answer has a value, so the page cannot show one.
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { Pencil, Plus, Search, Trash2 } from "lucide-react";
import { useState } from "react";
import { call, get } from "../../api/client";
import type { SecretList, SecretView } from "../../api/schema";
import { HIDDEN, type Same } from "../../ui/AsCommand";
import { Button } from "../../ui/Button";
import { Confirm, Dialog } from "../../ui/Dialog";
import { Field } from "../../ui/Field";
import { Card, Empty, Page, Skeleton } from "../../ui/Page";
import { ProblemBox } from "../../ui/Problem";
import { type Column, Table } from "../../ui/Table";
import { Time } from "../../ui/Time";
import { say } from "../../ui/Toasts";

const MOST = 1000;

export function SecretsPage() {
  const [setting, setSetting] = useState<SecretView | "new" | null>(null);
  const [deleting, setDeleting] = useState<SecretView | null>(null);
  const [shown, setShown] = useState<SecretView | null>(null);
  const secrets = useQuery({
    queryKey: ["secrets"],
    queryFn: ({ signal }) => get<SecretList>("/v1/secrets", { limit: MOST }, signal),
    refetchInterval: 30_000,
  });
  return (
    <Page
      title="Secrets"
      lead="Values that jobs name and only workers get. They are stored encrypted, and nobody can read them here."
      actions={<Button kind="primary" needs="secrets.put" icon={<Plus size={14} />} onClick={() => setSetting("new")}>Store a secret</Button>}
    >
      <Card flush title="Secrets">
        {secrets.isPending ? (
          <Skeleton />
        ) : secrets.data === undefined ? (
          <ProblemBox error={secrets.error} retry={() => void secrets.refetch()} />
        ) : secrets.data.secrets.length === 0 ? (
          <Empty title="There are no secrets yet.">
            {secrets.data.enabled
              ? "Store one, and name it in a job: {\"$secret\": \"db-password\"}."
              : "This server has no master key, so it takes none. Set MAINSPRING_MASTER_KEY_FILE."}
          </Empty>
        ) : (
          <Table label="Secrets" columns={columns({ setSetting, setDeleting, setShown })} rows={secrets.data.secrets} most={100} rowKey={(secret) => secret.name} />
        )}
        {secrets.data?.next ? <p className="muted">Only the first {MOST} are listed.</p> : null}
      </Card>
      {setting ? <Store secret={setting === "new" ? null : setting} onClose={() => setSetting(null)} /> : null}
      {deleting ? <Delete secret={deleting} onClose={() => setDeleting(null)} /> : null}
      {shown ? <Users secret={shown} onClose={() => setShown(null)} /> : null}
    </Page>
  );
}

interface Verbs {
  setSetting: (secret: SecretView) => void;
  setDeleting: (secret: SecretView) => void;
  setShown: (secret: SecretView) => void;
}

function columns({ setSetting, setDeleting, setShown }: Verbs): Column<SecretView>[] {
  return [
    { key: "name", head: "Secret", phone: "first", grow: true, cell: (secret) => secret.name },
    { key: "version", head: "Version", cell: (secret) => <><span className="onPhone">version </span>{secret.version}</> },
    { key: "changed", head: "Changed", cell: (secret) => <Time at={secret.changed_at} /> },
    { key: "by", head: "By", phone: "none", cell: (secret) => secret.changed_by },
    { key: "for", head: "For", cell: (secret) => scope(secret) },
    {
      key: "verbs", head: <span className="sr">Verbs</span>, cell: (secret) => (
        <>
          <Button icon={<Search size={14} />} onClick={() => setShown(secret)} aria-label={`Where ${secret.name} is used`}>Used by</Button>{" "}
          <Button needs="secrets.put" icon={<Pencil size={14} />} onClick={() => setSetting(secret)} aria-label={`New version of ${secret.name}`}>New version</Button>{" "}
          <Button needs="secrets.delete" icon={<Trash2 size={14} />} onClick={() => setDeleting(secret)} aria-label={`Delete ${secret.name}`}>Delete</Button>
        </>
      ),
    },
  ];
}

function scope(secret: SecretView): string {
  const parts = [...(secret.queues ?? []).map((one) => `queue ${one}`), ...(secret.tasks ?? []).map((one) => `task ${one}`)];
  return parts.length === 0 ? "all jobs" : parts.join(", ");
}

function names(text: string): string[] {
  return text.split(",").map((one) => one.trim()).filter((one) => one !== "");
}

function Store({ secret, onClose }: { secret: SecretView | null; onClose: () => void }) {
  const [name, setName] = useState(secret?.name ?? "");
  const [value, setValue] = useState("");
  const [queues, setQueues] = useState((secret?.queues ?? []).join(", "));
  const [tasks, setTasks] = useState((secret?.tasks ?? []).join(", "));
  const client = useQueryClient();
  const path = `/v1/secrets/${encodeURIComponent(name.trim())}`;
  const scoped = { queues: names(queues), tasks: names(tasks) };
  const given = value === "" ? {} : { value: HIDDEN };
  const same: Same = {
    command: ["secret", "set", name.trim(), ...(value === "" ? ["--keep-value"] : ["--file", "value.txt"]), ...scoped.queues.flatMap((one) => ["--queue", one]), ...scoped.tasks.flatMap((one) => ["--task", one])],
    method: "PUT", path, body: { ...given, ...scoped }, python: ["set_secret", name.trim(), ...Object.values(given)], named: scoped,
  };
  const act = async (): Promise<void> => {
    const { data } = await call<SecretView>("PUT", path, { body: { ...(value === "" ? {} : { value }), ...scoped } });
    say(`${data.name} has version ${data.version}.`);
    await client.invalidateQueries({ queryKey: ["secrets"] });
  };
  return (
    <Confirm title={secret ? `New version of ${secret.name}` : "Store a secret"} operation="secrets.put" verb="Store" act={act} onClose={onClose} same={same}>
      {secret ? null : <Field label="Name" required placeholder="db-password" value={name} onChange={(event) => setName(event.target.value)} />}
      <Field
        label="Value" type="password" autoComplete="off" required={secret === null} value={value} onChange={(event) => setValue(event.target.value)}
        help={secret ? "empty: the value stays. It is for attempts that start from now on" : "at least 8 bytes; it is never shown again"}
      />
      <Field label="Queues" placeholder="reports, billing" help="whose jobs may name it; empty: all" value={queues} onChange={(event) => setQueues(event.target.value)} />
      <Field label="Tasks" placeholder="shell, http" help="which may name it; empty: all" value={tasks} onChange={(event) => setTasks(event.target.value)} />
    </Confirm>
  );
}

function Delete({ secret, onClose }: { secret: SecretView; onClose: () => void }) {
  const client = useQueryClient();
  const act = async (): Promise<void> => {
    await call("DELETE", `/v1/secrets/${encodeURIComponent(secret.name)}`);
    say(`${secret.name} is deleted.`);
    await client.invalidateQueries({ queryKey: ["secrets"] });
  };
  return (
    <Confirm title={`Delete ${secret.name}?`} operation="secrets.delete" verb="Delete the secret" danger act={act} onClose={onClose} same={{ command: ["secret", "delete", secret.name], method: "DELETE", path: `/v1/secrets/${encodeURIComponent(secret.name)}`, python: ["delete_secret", secret.name] }}>
      <p>Attempts that need it fail from now on, with a reason that names it. Running ones keep it. This cannot be undone.</p>
      <UsedBy name={secret.name} />
    </Confirm>
  );
}

function Users({ secret, onClose }: { secret: SecretView; onClose: () => void }) {
  return (
    <Dialog title={`Where ${secret.name} is used`} onClose={onClose}>
      <UsedBy name={secret.name} />
    </Dialog>
  );
}

/** The jobs and workflows that name it. One-time jobs that have fired are not among them. */
function UsedBy({ name }: { name: string }) {
  const found = useQuery({
    queryKey: ["secrets", name],
    queryFn: ({ signal }) => get<SecretView>(`/v1/secrets/${encodeURIComponent(name)}`, {}, signal),
  });
  if (found.isPending) return <Skeleton />;
  if (found.data === undefined) return <ProblemBox error={found.error} retry={() => void found.refetch()} />;
  const users = found.data.used_by ?? [];
  if (users.length === 0) return <p>No scheduled job and no workflow names it.</p>;
  return (
    <>
      <ul>
        {users.map((job) => (
          <li key={job}><Link to="/jobs/$job" params={{ job }}>{job}</Link></li>
        ))}
      </ul>
      {found.data.more_users ? <p className="muted">There are more.</p> : null}
    </>
  );
}
