// A keyset list on the page: rows, "12 new", problem, loading, nothing found, next page.
import { Link } from "@tanstack/react-router";
import { ArrowUp } from "lucide-react";
import type { ReactNode } from "react";
import type { Total } from "../bulk/useTotal";
import { count } from "../lib/format";
import styles from "./List.module.css";
import { Skeleton } from "./Page";
import { ProblemBox } from "./Problem";
import { type Column, Table } from "./Table";
import { Time } from "./Time";
import type { Keyset } from "./useKeyset";
import { MOST_SORTED } from "./useSorted";

interface Props<Row> {
  label: string;
  list: Keyset<Row>;
  columns: Column<Row>[];
  rowKey: (row: Row) => string;
  empty: ReactNode;
  after: string | undefined;
  marked?: (row: Row) => boolean;
  /** How many rows the list has in all, where somebody knows. */
  total?: Total | null;
}

export function List<Row>({ label, list, columns, rowKey, empty, after, marked, total = null }: Props<Row>) {
  if (list.error && list.rows.length === 0)
    return (
      <div className={styles.pad}>
        <ProblemBox error={list.error} retry={list.retry} />
      </div>
    );
  if (list.pending) return <Skeleton lines={8} />;
  const whole = after === undefined && list.next === null;
  const sortable = whole || (after === undefined && total !== null && total.exact && total.count <= MOST_SORTED);
  const nothing = list.rows.length === 0 && list.waiting === 0;
  return (
    <div className={list.stale ? styles.old : undefined} aria-busy={list.stale} {...list.area}>
      {list.waiting > 0 && after === undefined ? (
        <div className={styles.over}>
          <button type="button" className={styles.fresh} onClick={list.showNew}>
            <ArrowUp size={14} aria-hidden="true" /> {list.waiting} new
          </button>
        </div>
      ) : null}
      {nothing && list.next === null ? empty : <Table label={label} columns={columns} rows={list.rows} rowKey={rowKey} marked={marked} whole={sortable} />}
      {list.next !== null && (nothing || list.searchedTo !== null) ? <Looked nothing={nothing} to={list.searchedTo} /> : null}
      <Pager after={after} next={list.next} goOn={list.searchedTo !== null} total={total} />
    </div>
  );
}

function Looked({ nothing, to }: { nothing: boolean; to: string | null }) {
  return (
    <p className={styles.pad}>
      {nothing ? "Nothing found so far. " : ""}
      {to === null ? "Older ones may match." : <>Looked back to <Time at={to} exact />. Older ones may match.</>}
    </p>
  );
}

function Pager({ after, next, goOn, total }: { after: string | undefined; next: string | null; goOn: boolean; total: Total | null }) {
  if (after === undefined && next === null && !total?.count) return null;
  return (
    <nav className={styles.pager} aria-label="Pages of the list">
      {total ? <span className={styles.total}>{total.exact ? count(total.count) : `about ${count(total.count)}`} in all</span> : null}
      {after === undefined && next === null ? null : after === undefined ? <span className="muted">First page</span> : <PageLink to={undefined}>First page</PageLink>}
      {after === undefined && next === null ? null : next === null ? <span className="muted">Last page</span> : <PageLink to={next}>{goOn ? "Go on" : "Next page"}</PageLink>}
    </nav>
  );
}

function PageLink({ to, children }: { to: string | undefined; children: ReactNode }) {
  return (
    <Link to="." search={(old: Record<string, unknown>) => ({ ...old, after: to }) as never}>
      {children}
    </Link>
  );
}
