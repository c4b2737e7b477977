import { useQuery, useQueryClient } from "@tanstack/react-query";
import { Plus, Trash2 } from "lucide-react";
import { useState } from "react";
import { change, get, post } from "../../api/client";
import { sessionQuery } from "../../api/session";
import type { TenantList, TokenList, TokenMade, TokenView } from "../../api/schema";
import type { Same } from "../../ui/AsCommand";
import { Button } from "../../ui/Button";
import { Copy } from "../../ui/Copy";
import { Confirm, Dialog } from "../../ui/Dialog";
import { Field, Select } from "../../ui/Field";
import { Card, Page, Skeleton } from "../../ui/Page";
import { ProblemBox } from "../../ui/Problem";
import { StateMark } from "../../ui/StateMark";
import { type Column, Table } from "../../ui/Table";
import { Time } from "../../ui/Time";
import { say } from "../../ui/Toasts";
import { HistoryLink } from "../audit/HistoryLink";
import styles from "./Access.module.css";
import { Quotas } from "./Quotas";
import { Sessions } from "./Sessions";

export function AccessPage() {
  const [creating, setCreating] = useState(false);
  const [made, setMade] = useState<TokenMade | null>(null);
  const [revoking, setRevoking] = useState<TokenView | null>(null);
  const tokens = useQuery({ queryKey: ["tokens"], queryFn: ({ signal }) => get<TokenList>("/v1/tokens", {}, signal), refetchInterval: 30_000 });
  const tenants = useQuery({ queryKey: ["tenants"], queryFn: ({ signal }) => get<TenantList>("/v1/tenants", {}, signal) });
  return (
    <Page
      title="Tokens and tenants"
      lead="Who may call: admins change everything, operators keep it running, viewers only look, workers run."
      actions={<Button kind="primary" needs="tokens.create" icon={<Plus size={14} />} onClick={() => setCreating(true)}>Create a token</Button>}
    >
      <Card flush title="Tokens">
        {tokens.isPending ? (
          <Skeleton />
        ) : tokens.data === undefined ? (
          <ProblemBox error={tokens.error} retry={() => void tokens.refetch()} />
        ) : (
          <Table label="Tokens" columns={columns(setRevoking)} rows={tokens.data.tokens} most={90} rowKey={(token) => token.token_id} />
        )}
      </Card>
      <Sessions />
      {tenants.data ? (
        <Card flush title="Tenants">
          <Table
            label="Tenants" rows={tenants.data.tenants} most={50} rowKey={(tenant) => String(tenant.tenant_id)}
            columns={[
              { key: "name", head: "Tenant", phone: "first", grow: true, cell: (tenant) => tenant.name },
              { key: "created", head: "Created", cell: (tenant) => <Time at={tenant.created_at} /> },
            ]}
          />
        </Card>
      ) : null}
      <Quotas tenants={tenants.data?.tenants ?? []} />
      {creating ? <CreateToken onClose={() => setCreating(false)} onMade={setMade} /> : null}
      {made ? (
        <Dialog title={`The secret of ${made.name}`} onClose={() => setMade(null)}>
          <p>It is shown this once. Keep it where secrets are kept.</p>
          <pre className={styles.secret}>{made.token}</pre>
          <Copy text={made.token} label="Copy the secret" />
        </Dialog>
      ) : null}
      {revoking ? <Revoke token={revoking} onClose={() => setRevoking(null)} /> : null}
    </Page>
  );
}

function columns(revoke: (token: TokenView) => void): Column<TokenView>[] {
  return [
    { key: "state", head: "State", phone: "first", cell: (token) => <StateMark state={stateOf(token)} /> },
    { key: "name", head: "Token", phone: "first", grow: true, cell: (token) => (token.user ? `${token.name} (${token.user})` : token.name) },
    { key: "role", head: "Role", cell: (token) => token.role },
    { key: "reach", head: "Narrowed to", phone: "none", cut: true, cell: (token) => reachOf(token) },
    { key: "tenant", head: "Tenant", cell: (token) => token.tenant ?? "all" },
    { key: "created", head: "Created", phone: "none", cell: (token) => <Time at={token.created_at} /> },
    { key: "expires", head: "Expires", cell: (token) => <Time at={token.expires_at} none="never" /> },
    { key: "history", head: <span className="sr">History</span>, phone: "none", room: 2, cell: (token) => <HistoryLink kind="token" id={token.token_id} name={token.name} /> },
    { key: "revoke", head: <span className="sr">Verbs</span>, cell: (token) => (token.revoked_at === null ? <Button needs="tokens.revoke" icon={<Trash2 size={14} />} onClick={() => revoke(token)} aria-label={`Revoke ${token.name}`}>Revoke</Button> : null) },
  ];
}

/** How a token is narrowed, in words. Empty if it is not. */
export function reachOf(token: Pick<TokenView, "queues" | "tasks" | "labels" | "payloads" | "addresses">): string {
  const labels = Object.entries(token.labels ?? {}).map(([name, value]) => `${name}=${value}`);
  return [
    token.queues ? `queues ${token.queues.join(", ")}` : "",
    token.tasks ? `tasks ${token.tasks.join(", ")}` : "",
    labels.length > 0 ? `labels ${labels.join(", ")}` : "",
    token.payloads === false ? "no payloads" : "",
    token.addresses ? `from ${token.addresses.join(", ")}` : "",
  ].filter(Boolean).join("; ");
}

function listed(text: string): string[] {
  return text.split(",").map((one) => one.trim()).filter(Boolean);
}

interface Reach {
  queues: string;
  tasks: string;
  labels: string;
  addresses: string;
  payloads: boolean;
}

const EVERYTHING: Reach = { queues: "", tasks: "", labels: "", addresses: "", payloads: true };

/** The fields of the request that narrow the token. What is empty does not. */
function narrowing(reach: Reach): Record<string, unknown> {
  const labels = listed(reach.labels).map((one) => {
    const [name = "", ...value] = one.split("=");
    return [name.trim(), value.join("=").trim()] as const;
  });
  return {
    ...(listed(reach.queues).length > 0 ? { queues: listed(reach.queues) } : {}),
    ...(listed(reach.tasks).length > 0 ? { tasks: listed(reach.tasks) } : {}),
    ...(labels.length > 0 ? { labels: Object.fromEntries(labels) } : {}),
    ...(listed(reach.addresses).length > 0 ? { addresses: listed(reach.addresses) } : {}),
    ...(reach.payloads ? {} : { payloads: false }),
  };
}

/** The same as options of the command line. */
function optionsOf(reach: Reach, expires: string): string[] {
  const each = (option: string, text: string): string[] => listed(text).flatMap((one) => [option, one]);
  return [
    ...(expires ? ["--expires-in", expires] : []), ...each("--queue", reach.queues), ...each("--task", reach.tasks), ...each("--label", reach.labels),
    ...each("--address", reach.addresses), ...(reach.payloads ? [] : ["--no-payloads"]),
  ];
}

function stateOf(token: TokenView): string {
  if (token.revoked_at !== null) return "CANCELLED";
  return token.expires_at !== null && Date.parse(token.expires_at) < Date.now() ? "SKIPPED" : "LIVE";
}

function CreateToken({ onClose, onMade }: { onClose: () => void; onMade: (made: TokenMade) => void }) {
  const [name, setName] = useState("");
  const [role, setRole] = useState("viewer");
  const [expires, setExpires] = useState("");
  const [own, setOwn] = useState("");
  const person = useQuery(sessionQuery).data?.user_id != null;
  const [reach, setReach] = useState(EVERYTHING);
  const session = useQuery(sessionQuery).data;
  const client = useQueryClient();
  const body = { name: name.trim(), role, ...narrowing(reach), ...(expires.trim() ? { expires_in: expires.trim() } : {}) };
  const { name: named, role: itsRole, ...rest } = body;
  const same: Same = { command: ["token", "add", named, "--role", itsRole, ...optionsOf(reach, expires.trim())], method: "POST", path: "/v1/tokens", body, python: ["add_token", named, itsRole], named: rest };
  const act = async (): Promise<void> => {
    onMade(await post<TokenMade>("/v1/tokens", { ...body, ...(own.trim() ? { [person ? "password" : "token"]: own.trim() } : {}) }));
    await client.invalidateQueries({ queryKey: ["tokens"] });
  };
  return (
    <Confirm title="Create a token" operation="tokens.create" verb="Create" act={act} onClose={onClose} same={same}>
      <Field label="Name" required value={name} onChange={(event) => setName(event.target.value)} />
      <Select label="Role" value={role} options={[["viewer", "viewer: looks, changes nothing"], ["submitter", "submitter: creates jobs, changes its own"], ["operator", "operator: pauses, cancels, retries, drains"], ["admin", "admin: may do everything"], ["metrics", "metrics: reads /metrics"], ["worker", "worker: runs attempts"]]} onChange={(event) => setRole(event.target.value)} />
      <Field label="Expires in" placeholder="90d" help="empty: valid until it is revoked" value={expires} onChange={(event) => setExpires(event.target.value)} />
      <details>
        <summary>Narrow it to a part of the tenant</summary>
        <Field label="Queues" placeholder="payments, mail" help="with commas; empty: all" value={reach.queues} onChange={(event) => setReach({ ...reach, queues: event.target.value })} />
        <Field label="Tasks" placeholder="billing.charge" help="with commas; empty: all" value={reach.tasks} onChange={(event) => setReach({ ...reach, tasks: event.target.value })} />
        <Field label="Labels" placeholder="team=payments" help="jobs that have all of these labels" value={reach.labels} onChange={(event) => setReach({ ...reach, labels: event.target.value })} />
        <Field label="Addresses" placeholder="10.0.0.0/8" help="networks from which it is accepted" value={reach.addresses} onChange={(event) => setReach({ ...reach, addresses: event.target.value })} />
        <Select label="Payloads" value={reach.payloads ? "shown" : "hidden"} options={[["shown", "shown"], ["hidden", "hidden: also results, variables, headers and output"]]} onChange={(event) => setReach({ ...reach, payloads: event.target.value === "shown" })} />
      </details>
      <Field
        label={person ? "Your own password" : "Your own token"} type="password" autoComplete="off" value={own} onChange={(event) => setOwn(event.target.value)}
        help={`for the role admin, and for a token that outlives this session; you signed in with ${session?.name ?? "it"}`}
      />
    </Confirm>
  );
}

function Revoke({ token, onClose }: { token: TokenView; onClose: () => void }) {
  const client = useQueryClient();
  const renew = (): void => void client.invalidateQueries({ queryKey: ["tokens"] });
  const act = async (): Promise<void> => {
    await change("POST", `/v1/tokens/${token.token_id}:revoke`, token.etag, {});
    say(`${token.name} is revoked.`);
    renew();
  };
  return (
    <Confirm title={`Revoke ${token.name}?`} operation="tokens.revoke" verb="Revoke the token" danger act={act} onClose={onClose} onConflict={renew} same={{ command: ["token", "revoke", token.token_id], method: "POST", path: `/v1/tokens/${token.token_id}:revoke`, body: {}, python: ["revoke_token", token.token_id] }}>
      <p>It is invalid at once, everywhere. Sessions that began with it end. This cannot be undone.</p>
    </Confirm>
  );
}
