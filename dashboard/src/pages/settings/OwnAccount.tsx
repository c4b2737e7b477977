// The person who is signed in: the tenants, the password, the personal tokens.
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { KeyRound, Plus, Trash2 } from "lucide-react";
import { useState } from "react";
import { get, post } from "../../api/client";
import { changed } from "../../api/session";
import type { OwnUser, SignedIn, TokenMade, TokenView } from "../../api/schema";
import { Providers } from "../../shell/Providers";
import { Button } from "../../ui/Button";
import { Copy } from "../../ui/Copy";
import { Confirm, Dialog } from "../../ui/Dialog";
import { Field } from "../../ui/Field";
import { Card, Facts, Skeleton } from "../../ui/Page";
import { ProblemBox } from "../../ui/Problem";
import { type Column, Table } from "../../ui/Table";
import { Time } from "../../ui/Time";
import { say } from "../../ui/Toasts";
import styles from "../access/Access.module.css";

const PATH = "/v1/user";

export function OwnAccount() {
  const [changing, setChanging] = useState(false);
  const [creating, setCreating] = useState(false);
  const [made, setMade] = useState<TokenMade | null>(null);
  const [revoking, setRevoking] = useState<TokenView | null>(null);
  const client = useQueryClient();
  const own = useQuery({ queryKey: ["user"], queryFn: ({ signal }) => get<OwnUser>(PATH, {}, signal) });
  if (own.isPending) return <Skeleton />;
  if (own.data === undefined) return <ProblemBox error={own.error} retry={() => void own.refetch()} />;
  const go = async (tenant: string): Promise<void> => {
    const now = await post<SignedIn>(`${PATH}/tenant`, { tenant });
    changed();
    await client.resetQueries(); // what is remembered is of the other tenant
    say(`You are ${now.role} of tenant ${now.tenant}.`);
  };
  return (
    <>
      <Card title="You">
        <Facts rows={[["Name", own.data.name], ["Mail", own.data.mail], ["Password of", <Time key="at" at={own.data.password_at} none="never" focusable />]]} />
        <p>
          {own.data.password_at === null ? <Providers verb="Confirm who you are at" again /> : <Button icon={<KeyRound size={14} />} onClick={() => setChanging(true)}>Change the password</Button>}{" "}
          {own.data.tenants.filter((one) => one.tenant !== own.data.tenant).map((one) => (
            <Button key={one.tenant} onClick={() => void go(one.tenant)}>Go on in {one.tenant}</Button>
          ))}
        </p>
      </Card>
      <Card flush title="Personal tokens" aside={<Button icon={<Plus size={14} />} onClick={() => setCreating(true)}>Create a personal token</Button>}>
        <Table label="Personal tokens" columns={columns(setRevoking)} rows={own.data.tokens} most={50} rowKey={(token) => token.token_id} />
      </Card>
      {changing ? <ChangePassword onClose={() => setChanging(false)} /> : null}
      {creating ? <CreateToken hasPassword={own.data.password_at !== null} onClose={() => setCreating(false)} onMade={setMade} /> : null}
      {made ? (
        <Dialog title={`The secret of ${made.name}`} onClose={() => setMade(null)}>
          <p>It is shown this once. It ends with you, and does what you may do.</p>
          <pre className={styles.secret}>{made.token}</pre>
          <Copy text={made.token} label="Copy the secret" />
        </Dialog>
      ) : null}
      {revoking ? <Revoke token={revoking} onClose={() => setRevoking(null)} /> : null}
    </>
  );
}

function columns(revoke: (token: TokenView) => void): Column<TokenView>[] {
  return [
    { key: "name", head: "Token", phone: "first", grow: true, cell: (token) => token.name },
    { key: "role", head: "Role", cell: (token) => token.role },
    { key: "created", head: "Created", phone: "none", cell: (token) => <Time at={token.created_at} /> },
    { key: "expires", head: "Expires", cell: (token) => (token.revoked_at === null ? <Time at={token.expires_at} none="never" /> : "revoked") },
    { key: "verbs", head: <span className="sr">Verbs</span>, cell: (token) => (token.revoked_at === null ? <Button icon={<Trash2 size={14} />} onClick={() => revoke(token)} aria-label={`Revoke ${token.name}`}>Revoke</Button> : null) },
  ];
}

function ChangePassword({ onClose }: { onClose: () => void }) {
  const [old, setOld] = useState("");
  const [next, setNext] = useState("");
  const act = async (): Promise<void> => {
    await post<OwnUser>(`${PATH}/password`, { password: old, new_password: next });
    say("The password is changed. Your other sessions have ended.");
  };
  return (
    <Confirm title="Change the password" operation="user.password" verb="Change it" act={act} onClose={onClose}>
      <Field label="Password now" type="password" autoComplete="current-password" required value={old} onChange={(event) => setOld(event.target.value)} />
      <Field label="New password" type="password" autoComplete="new-password" required minLength={12} help="at least 12 characters; your other sessions end" value={next} onChange={(event) => setNext(event.target.value)} />
    </Confirm>
  );
}

function CreateToken({ hasPassword, onClose, onMade }: { hasPassword: boolean; onClose: () => void; onMade: (made: TokenMade) => void }) {
  const [name, setName] = useState("");
  const [expires, setExpires] = useState("90d");
  const [password, setPassword] = useState("");
  const client = useQueryClient();
  const act = async (): Promise<void> => {
    const body = { name: name.trim(), ...(hasPassword ? { password } : {}), ...(expires.trim() ? { expires_in: expires.trim() } : {}) };
    onMade(await post<TokenMade>(`${PATH}/tokens`, body));
    await client.invalidateQueries({ queryKey: ["user"] });
  };
  return (
    <Confirm title="Create a personal token" operation="user.create_token" verb="Create" act={act} onClose={onClose}>
      <Field label="Name" required placeholder="laptop" value={name} onChange={(event) => setName(event.target.value)} />
      <Field label="Expires in" placeholder="90d" help="empty: valid until it is revoked, or you leave" value={expires} onChange={(event) => setExpires(event.target.value)} />
      {hasPassword ? (
        <Field label="Your own password" type="password" autoComplete="current-password" required value={password} onChange={(event) => setPassword(event.target.value)} />
      ) : (
        <p className="muted">Within five minutes after you have confirmed who you are.</p>
      )}
    </Confirm>
  );
}

function Revoke({ token, onClose }: { token: TokenView; onClose: () => void }) {
  const client = useQueryClient();
  const act = async (): Promise<void> => {
    await post(`${PATH}/tokens/${token.token_id}:revoke`);
    say(`${token.name} is revoked.`);
    await client.invalidateQueries({ queryKey: ["user"] });
  };
  return (
    <Confirm title={`Revoke ${token.name}?`} operation="user.revoke_token" verb="Revoke the token" danger act={act} onClose={onClose}>
      <p>It is invalid at once, everywhere. This cannot be undone.</p>
    </Confirm>
  );
}
