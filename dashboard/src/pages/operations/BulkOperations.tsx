// The operations of bulk verbs, newest first. The address names the one that is open.
import { Link, useSearch } from "@tanstack/react-router";
import { operationWords, PROGRESS_WORDS } from "../../bulk/acts";
import type { OperationList, OperationView } from "../../api/schema";
import { count, counted, duration } from "../../lib/format";
import { ChoiceFilter, Filters } from "../../ui/Filters";
import { List } from "../../ui/List";
import { Meter } from "../../ui/Meter";
import { Card, Empty } from "../../ui/Page";
import { StateMark } from "../../ui/StateMark";
import type { Column } from "../../ui/Table";
import { Time } from "../../ui/Time";
import { useKeyset } from "../../ui/useKeyset";
import { OperationCard, StopOperation } from "./OperationCard";

const STATES: [string, string][] = Object.entries(PROGRESS_WORDS);
const idOf = (operation: OperationView): string => operation.id;

const COLUMNS: Column<OperationView>[] = [
  { key: "state", head: "State", phone: "first", cell: (operation) => <StateMark state={operation.state} /> },
  {
    key: "what", head: "Operation", phone: "first", grow: true,
    cell: (operation) => (
      <Link to="." search={(old: Record<string, unknown>) => ({ ...old, op: operation.id }) as never} resetScroll={false} title={operation.id}>
        {operationWords(operation)}
      </Link>
    ),
  },
  {
    key: "progress", head: "Progress",
    cell: (operation) => (
      <Meter label={`Progress of ${operationWords(operation)}`} total={operation.count} good={operation.done} bad={operation.failed}>
        {count(operation.done)} of {counted(operation.count, !operation.exact)}
      </Meter>
    ),
  },
  { key: "refused", head: "Refused", align: "end", cell: (operation) => (operation.failed > 0 ? <>{count(operation.failed)}<span className="onPhone"> refused</span></> : null) },
  { key: "by", head: "By", phone: "none", cell: (operation) => operation.requested_by },
  { key: "begun", head: "Begun", cell: (operation) => <Time at={operation.created_at} /> },
  { key: "took", head: "Took", align: "end", phone: "none", cell: (operation) => (operation.ended_at ? duration((Date.parse(operation.ended_at) - Date.parse(operation.created_at)) / 1000) : null) },
  { key: "verbs", head: <span className="sr">Verbs</span>, cell: (operation) => (operation.ended_at ? null : <StopOperation operation={operation} />) },
];

export function BulkOperations() {
  const search = useSearch({ from: "/operations" });
  const list = useKeyset<OperationList, OperationView>({
    path: "/v1/operations", query: { state: search.state }, after: search.after, rows: (body) => body.operations, next: (body) => body.next,
    id: idOf, everyMs: 2000,
  });
  return (
    <>
      {search.op ? <OperationCard key={search.op} id={search.op} /> : null}
      <Filters active={search.state === undefined ? [] : ["state"]}>
        <ChoiceFilter name="state" value={search.state} label="State" options={STATES} />
      </Filters>
      <Card flush>
        <List
          label="Operations" list={list} after={search.after} rowKey={idOf} columns={COLUMNS} marked={(operation) => operation.id === search.op}
          empty={
            search.state !== undefined ? (
              <Empty title="No operation matches.">Clear the filter to see all operations.</Empty>
            ) : (
              <Empty title="No operations yet" command="mainspring act pause jobs queue=mail">
                Tick rows of jobs, runs or dead letters and choose a verb, or act on all that match a filter:
              </Empty>
            )
          }
        />
      </Card>
    </>
  );
}
