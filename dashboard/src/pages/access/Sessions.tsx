// The browsers that are signed in.
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { LogOut } from "lucide-react";
import { useState } from "react";
import { get, post } from "../../api/client";
import type { OpenSession, SessionList } from "../../api/schema";
import { Button } from "../../ui/Button";
import { Confirm } from "../../ui/Dialog";
import { Card, Skeleton } from "../../ui/Page";
import { ProblemBox } from "../../ui/Problem";
import { type Column, Table } from "../../ui/Table";
import { Time } from "../../ui/Time";
import { say } from "../../ui/Toasts";

export function Sessions() {
  const [ending, setEnding] = useState<OpenSession | null>(null);
  const sessions = useQuery({
    queryKey: ["sessions"],
    queryFn: ({ signal }) => get<SessionList>("/v1/sessions", {}, signal),
    refetchInterval: 30_000,
  });
  return (
    <Card flush title="Sessions">
      {sessions.isPending ? (
        <Skeleton />
      ) : sessions.data === undefined ? (
        <ProblemBox error={sessions.error} retry={() => void sessions.refetch()} />
      ) : (
        <Table label="Sessions" columns={columns(setEnding)} rows={sessions.data.sessions} most={50} rowKey={(session) => session.session_id} />
      )}
      {sessions.data?.more ? <p className="muted">Only the newest are listed.</p> : null}
      {ending ? <End session={ending} onClose={() => setEnding(null)} /> : null}
    </Card>
  );
}

function columns(end: (session: OpenSession) => void): Column<OpenSession>[] {
  return [
    { key: "name", head: "Signed in as", phone: "first", grow: true, cell: (session) => (session.current ? `${session.name} (this browser)` : session.name) },
    { key: "role", head: "Role", cell: (session) => session.role },
    { key: "since", head: "Since", cell: (session) => <><span className="onPhone">since </span><Time at={session.signed_in_at} /></> },
    { key: "seen", head: "Last seen", cell: (session) => <><span className="onPhone">seen </span><Time at={session.last_seen_at} /></> },
    { key: "ends", head: "Ends", cell: (session) => <><span className="onPhone">ends </span><Time at={session.ends_at} /></> },
    { key: "end", head: <span className="sr">Verbs</span>, cell: (session) => (session.current ? null : <Button needs="sessions.end" icon={<LogOut size={14} />} onClick={() => end(session)} aria-label={`End the session of ${session.name}`}>End</Button>) },
  ];
}

function End({ session, onClose }: { session: OpenSession; onClose: () => void }) {
  const client = useQueryClient();
  const act = async (): Promise<void> => {
    await post(`/v1/sessions/${session.session_id}:end`);
    say(`The session of ${session.name} has ended.`);
    await client.invalidateQueries({ queryKey: ["sessions"] });
  };
  return (
    <Confirm title={`End a session of ${session.name}?`} operation="sessions.end" verb="End the session" danger act={act} onClose={onClose} same={{ command: ["session", "end", session.session_id], method: "POST", path: `/v1/sessions/${session.session_id}:end`, python: ["end_session", session.session_id] }}>
      <p>That browser is signed out at once. The token stays valid: revoke it to keep its owner out.</p>
    </Confirm>
  );
}
