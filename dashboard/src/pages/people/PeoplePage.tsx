// The people of the tenant: who they are, what they may do, and the links with which they choose a password.
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { KeyRound, Pause, Pencil, Play, Plus, Trash2 } from "lucide-react";
import { useState } from "react";
import { call, get, post } from "../../api/client";
import { sessionQuery } from "../../api/session";
import type { UserLink, UserList, UserView } from "../../api/schema";
import type { Same } from "../../ui/AsCommand";
import { Button } from "../../ui/Button";
import { Copy } from "../../ui/Copy";
import { Confirm, Dialog } from "../../ui/Dialog";
import { Field, Select } from "../../ui/Field";
import { Card, Empty, Page, Skeleton } from "../../ui/Page";
import { ProblemBox } from "../../ui/Problem";
import { StateMark } from "../../ui/StateMark";
import { type Column, Table } from "../../ui/Table";
import { Time } from "../../ui/Time";
import { say } from "../../ui/Toasts";
import { HistoryLink } from "../audit/HistoryLink";
import styles from "../access/Access.module.css";

type Act = "role" | "disable" | "enable" | "reset" | "remove";
const ROLES: [string, string][] = [
  ["viewer", "viewer: looks, changes nothing"],
  ["submitter", "submitter: creates jobs, changes its own"],
  ["operator", "operator: pauses, cancels, retries, drains"],
  ["admin", "admin: may do everything"],
];
const STATES = { active: "LIVE", invited: "SCHEDULED", disabled: "CANCELLED" } as const;

export function PeoplePage() {
  const [inviting, setInviting] = useState(false);
  const [acting, setActing] = useState<{ act: Act; user: UserView } | null>(null);
  const [link, setLink] = useState<UserLink | null>(null);
  const people = useQuery({ queryKey: ["users"], queryFn: ({ signal }) => get<UserList>("/v1/users", {}, signal), refetchInterval: 30_000 });
  return (
    <Page
      title="People" lead="Who may sign in with mail address and password, and as what."
      actions={<Button kind="primary" needs="users.invite" icon={<Plus size={14} />} onClick={() => setInviting(true)}>Invite a person</Button>}
    >
      <Card flush title="People">
        {people.isPending ? (
          <Skeleton />
        ) : people.data === undefined ? (
          <ProblemBox error={people.error} retry={() => void people.refetch()} />
        ) : people.data.users.length === 0 ? (
          <Empty title="There are no people yet.">Everybody works with tokens. Invite a person, who then chooses a password.</Empty>
        ) : (
          <Table label="People" columns={columns((act, user) => setActing({ act, user }))} rows={people.data.users} most={100} rowKey={(user) => user.user_id} />
        )}
        {people.data?.more ? <p className="muted">Only the first are listed.</p> : null}
      </Card>
      {inviting ? <Invite onClose={() => setInviting(false)} onMade={setLink} /> : null}
      {acting ? <Change {...acting} onClose={() => setActing(null)} onMade={setLink} /> : null}
      {link ? (
        <Dialog title={`The link for ${link.name}`} onClose={() => setLink(null)}>
          <p>
            It is shown this once. Send it to {link.mail}: it works once, until <Time at={link.expires_at} />.
          </p>
          <pre className={styles.secret}>{location.origin + link.path}</pre>
          <Copy text={location.origin + link.path} label="Copy the link" />
        </Dialog>
      ) : null}
    </Page>
  );
}

function columns(act: (act: Act, user: UserView) => void): Column<UserView>[] {
  return [
    { key: "state", head: "State", phone: "first", cell: (user) => <><StateMark state={STATES[user.state]} /> <span className="sr">{user.state}</span></> },
    { key: "name", head: "Person", phone: "first", grow: true, cell: (user) => user.name },
    { key: "mail", head: "Mail", cut: true, cell: (user) => user.mail },
    { key: "tenants", head: "Roles", cell: (user) => user.tenants.map((one) => `${one.role} of ${one.tenant}${one.invited_until ? " (invited)" : ""}`).join(", ") },
    { key: "history", head: <span className="sr">History</span>, phone: "none", room: 2, cell: (user) => <HistoryLink kind="user" id={user.user_id} name={user.name} /> },
    {
      key: "verbs", head: <span className="sr">Verbs</span>, cell: (user) => (
        <>
          {user.state === "active" ? (
            <>
              <Button icon={<Pencil size={14} />} onClick={() => act("role", user)} aria-label={`Role of ${user.name}`}>Role</Button>{" "}
              <Button icon={<KeyRound size={14} />} onClick={() => act("reset", user)} aria-label={`New password for ${user.name}`}>New password</Button>{" "}
              <Button icon={<Pause size={14} />} onClick={() => act("disable", user)} aria-label={`Disable ${user.name}`}>Disable</Button>{" "}
            </>
          ) : null}
          {user.state === "disabled" ? <><Button icon={<Play size={14} />} onClick={() => act("enable", user)} aria-label={`Enable ${user.name}`}>Enable</Button>{" "}</> : null}
          <Button icon={<Trash2 size={14} />} onClick={() => act("remove", user)} aria-label={`Remove ${user.name}`}>Remove</Button>
        </>
      ),
    },
  ];
}

/** The field that a session needs for what lasts longer than itself, and its value as a part of the body. */
export function useTypedAgain(): [React.ReactNode, Record<string, string>] {
  const [typed, setTyped] = useState("");
  const session = useQuery(sessionQuery).data;
  const person = session?.user_id != null;
  const field = (
    <Field
      label={person ? "Your own password" : "Your own token"} type="password" required={!person} autoComplete="off" value={typed}
      onChange={(event) => setTyped(event.target.value)} help={`you signed in as ${session?.name ?? "it"}${person ? "; empty if you have just confirmed on the page Settings who you are" : ""}`}
    />
  );
  return [field, typed === "" ? {} : { [person ? "password" : "token"]: typed }];
}

function Invite({ onClose, onMade }: { onClose: () => void; onMade: (made: UserLink) => void }) {
  const [mail, setMail] = useState("");
  const [name, setName] = useState("");
  const [role, setRole] = useState("viewer");
  const [field, typed] = useTypedAgain();
  const client = useQueryClient();
  const act = async (): Promise<void> => {
    onMade(await post<UserLink>("/v1/users", { mail: mail.trim(), name: name.trim(), role, ...typed }));
    await client.invalidateQueries({ queryKey: ["users"] });
  };
  return (
    <Confirm title="Invite a person" operation="users.invite" verb="Invite" act={act} onClose={onClose} same={{ command: ["user", "invite", mail.trim(), "--name", name.trim(), "--role", role], method: "POST", path: "/v1/users", body: { mail: mail.trim(), name: name.trim(), role }, python: ["invite_user", mail.trim(), name.trim(), role] }}>
      <Field label="Mail address" type="email" required value={mail} onChange={(event) => setMail(event.target.value)} />
      <Field label="Name" required value={name} onChange={(event) => setName(event.target.value)} />
      <Select label="Role" value={role} options={ROLES} onChange={(event) => setRole(event.target.value)} />
      {field}
    </Confirm>
  );
}

const WORDS: Record<Act, { title: (name: string) => string; verb: string; danger: boolean; what: string }> = {
  role: { title: (name) => `The role of ${name}`, verb: "Change the role", danger: false, what: "It holds at once, also in sessions that are open. Personal tokens that exceed it are revoked." },
  reset: { title: (name) => `A new password for ${name}?`, verb: "Make a link", danger: false, what: "You get a link, with which the person chooses a password. When it is used, all sessions and personal tokens of the person end." },
  disable: { title: (name) => `Disable ${name}?`, verb: "Disable", danger: true, what: "Sessions and personal tokens end at once. The person can be enabled again; the tokens stay revoked." },
  enable: { title: (name) => `Enable ${name}?`, verb: "Enable", danger: false, what: "The person can sign in again, with the same password." },
  remove: { title: (name) => `Remove ${name}?`, verb: "Remove", danger: true, what: "Sessions and personal tokens end at once. Jobs that the person has created stay, with the name." },
};

const CALLS: Record<Act, string> = { role: "set_user_role", reset: "reset_password", disable: "disable_user", enable: "enable_user", remove: "remove_user" };

function Change({ act: kind, user, onClose, onMade }: { act: Act; user: UserView; onClose: () => void; onMade: (made: UserLink) => void }) {
  const [role, setRole] = useState<string>(user.tenants[0]?.role ?? "viewer");
  const [field, typed] = useTypedAgain();
  const client = useQueryClient();
  const { title, verb, danger, what } = WORDS[kind];
  const asks = kind === "role" || kind === "enable" || kind === "reset";
  const path = `/v1/users/${user.user_id}`;
  const tenant = kind === "role" && user.tenants.length === 1 ? { tenant: user.tenants[0]?.tenant } : {};
  const body = kind === "role" ? { role, ...tenant } : {};
  const same: Same = {
    command: ["user", kind, user.mail, ...(kind === "role" ? ["--role", role] : [])], method: kind === "remove" ? "DELETE" : "POST",
    path: kind === "remove" ? path : `${path}:${kind}`, ...(kind === "remove" ? {} : { body }), python: [CALLS[kind], user.mail, ...(kind === "role" ? [role] : [])], named: tenant,
  };
  const act = async (): Promise<void> => {
    if (kind === "remove") await call("DELETE", path);
    else if (kind === "reset") onMade(await post<UserLink>(`${path}:reset`, typed));
    else if (kind === "role") await post(`${path}:role`, { ...body, ...typed });
    else await post(`${path}:${kind}`, kind === "enable" ? typed : {});
    if (kind !== "reset") say(`${user.name}: done.`);
    await client.invalidateQueries({ queryKey: ["users"] });
  };
  return (
    <Confirm title={title(user.name)} operation={`users.${kind}`} verb={verb} danger={danger} act={act} onClose={onClose} same={same}>
      <p>{what}</p>
      {kind === "role" ? <Select label="Role" value={role} options={ROLES} onChange={(event) => setRole(event.target.value)} /> : null}
      {asks ? field : null}
    </Confirm>
  );
}
