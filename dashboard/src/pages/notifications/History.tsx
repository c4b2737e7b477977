// Messages, newest first.
import { useQueryClient } from "@tanstack/react-query";
import { useSearch } from "@tanstack/react-router";
import { Check, Send } from "lucide-react";
import { useState } from "react";
import { post } from "../../api/client";
import type { NotificationList, NotificationView } from "../../api/schema";
import type { Same } from "../../ui/AsCommand";
import { Button } from "../../ui/Button";
import { Confirm, Dialog } from "../../ui/Dialog";
import { ChoiceFilter, Filters } from "../../ui/Filters";
import { List } from "../../ui/List";
import { Card, Empty } from "../../ui/Page";
import type { Column } from "../../ui/Table";
import { plural } from "../../lib/format";
import { Time } from "../../ui/Time";
import { say } from "../../ui/Toasts";
import { useKeyset } from "../../ui/useKeyset";

const PATH = "/v1/notifications";
const STATES: [string, string][] = [["PENDING", "Being sent"], ["SENT", "Sent"], ["DEAD", "Given up"]];
type Verb = { kind: "acknowledge" | "send"; one: NotificationView };
const keyOf = (one: NotificationView): string => one.notification_id;

/** A test has no rule, and a rule of a job has no name. */
function ruleOf(one: NotificationView): string {
  return one.rule ?? (one.items[0]?.event === "test" ? "a test" : "of a job");
}

export function History() {
  const search = useSearch({ from: "/notifications" });
  const client = useQueryClient();
  const list = useKeyset<NotificationList, NotificationView>({
    path: PATH, query: { status: search.status }, after: search.after, rows: (body) => body.notifications, next: (body) => body.next,
    id: keyOf, everyMs: 10_000,
  });
  const [shown, setShown] = useState<NotificationView | null>(null);
  const [verb, setVerb] = useState<Verb | null>(null);
  const renew = (): void => void client.invalidateQueries({ queryKey: ["list", PATH] });
  const columns: Column<NotificationView>[] = [
    { key: "status", head: "Status", phone: "first", cell: (one) => Object.fromEntries(STATES)[one.status] },
    { key: "title", head: "Message", phone: "first", grow: true, cell: (one) => <Button kind="link" onClick={() => setShown(one)} title={one.title}>{one.title}</Button> },
    { key: "channel", head: "To", cut: true, cell: (one) => <span title={one.channel}>{one.channel}</span> },
    { key: "rule", head: "Rule", phone: "none", room: 1, cell: ruleOf },
    { key: "created", head: "Made", cell: (one) => <Time at={one.created_at} /> },
    { key: "acknowledged", head: "Acknowledged by", phone: "none", room: 1, cell: (one) => one.acknowledged_by ?? "" },
    { key: "error", head: "Error", phone: "none", cut: true, room: 2, cell: (one) => <span title={one.error ?? ""}>{one.error ?? ""}</span> },
    {
      key: "verbs", head: <span className="sr">Verbs</span>,
      cell: (one) => (
        <>
          {one.acknowledged_by || one.status === "PENDING" ? null : (
            <Button needs="notifications.acknowledge" icon={<Check size={14} />} onClick={() => setVerb({ kind: "acknowledge", one })} aria-label={`Acknowledge ${one.title}`}>Acknowledge</Button>
          )}{" "}
          {one.status === "DEAD" ? <Button needs="notifications.send" icon={<Send size={14} />} onClick={() => setVerb({ kind: "send", one })} aria-label={`Send again: ${one.title}`}>Send again</Button> : null}
        </>
      ),
    },
  ];
  return (
    <>
      <Filters active={search.status === undefined ? [] : ["status"]}>
        <ChoiceFilter name="status" value={search.status} label="Status" options={STATES} />
      </Filters>
      <Card flush>
        <List
          label="Notifications" list={list} after={search.after} rowKey={keyOf} columns={columns}
          empty={
            <Empty title="Nobody was told anything" command="mainspring rule set all-failures --on failure,recovered --to oncall">
              Messages of rules would be here, with what became of them. A rule needs a channel:
            </Empty>
          }
        />
      </Card>
      {shown ? <Details one={shown} onClose={() => setShown(null)} /> : null}
      {verb ? <VerbDialog verb={verb} onClose={() => setVerb(null)} renew={renew} /> : null}
    </>
  );
}

function VerbDialog({ verb, onClose, renew }: { verb: Verb; onClose: () => void; renew: () => void }) {
  const { kind, one } = verb;
  const act = async (): Promise<void> => {
    await post(`${PATH}/${one.notification_id}:${kind}`);
    say(kind === "send" ? "It is sent again." : "Nobody is reminded of it any more.");
    renew();
  };
  const same: Same = {
    command: ["notification", kind, one.notification_id], method: "POST", path: `${PATH}/${one.notification_id}:${kind}`,
    python: [`${kind}_notification`, one.notification_id],
  };
  return kind === "send" ? (
    <Confirm title="Send it again?" operation="notifications.send" verb="Send again" act={act} onClose={onClose} onConflict={renew} same={same}>
      <p className="wrap">{one.title}</p>
      <p>It is sent to {one.channel} with the same id, so that a receiver can see that it had it before.</p>
    </Confirm>
  ) : (
    <Confirm title="Acknowledge it?" operation="notifications.acknowledge" verb="Acknowledge" act={act} onClose={onClose} onConflict={renew} same={same}>
      <p className="wrap">{one.title}</p>
      <p>Others see that somebody looks after it. There are no reminders of it, and it is not escalated.</p>
    </Confirm>
  );
}

/** What a message tells, and what became of it. */
function Details({ one, onClose }: { one: NotificationView; onClose: () => void }) {
  return (
    <Dialog title={one.title} onClose={onClose}>
      <p>
        {Object.fromEntries(STATES)[one.status]}, to {one.channel}, rule: {ruleOf(one)}, {plural(one.attempts, "attempt")}, made <Time at={one.created_at} />.
        {one.error ? <span className="wrap"> {one.error}</span> : null}
        {one.acknowledged_by ? ` Acknowledged by ${one.acknowledged_by}.` : ""}
      </p>
      <ul>
        {one.items.map((item, index) => (
          <li key={index} className="wrap">
            <p>
              {item.path ? <a href={item.path}>{item.subject}</a> : item.subject}: {item.event}
              {(item.count ?? 1) > 1 ? `, ${item.count} times` : ""}, since <Time at={item.since} />
            </p>
            {item.reason ? <p className="muted wrap">{item.reason}</p> : null}
          </li>
        ))}
      </ul>
      {one.more ? <p className="muted">And {plural(one.more, "other")}.</p> : null}
    </Dialog>
  );
}
