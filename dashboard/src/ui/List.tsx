// A keyset list on the page: rows, "12 new", problem, loading, nothing found, next page.
import { Link } from "@tanstack/react-router";
import { ArrowUp } from "lucide-react";
import type { ReactNode } from "react";
import styles from "./List.module.css";
import { Skeleton } from "./Page";
import { ProblemBox } from "./Problem";
import { type Column, Table } from "./Table";
import type { Keyset } from "./useKeyset";

interface Props<Row> {
  label: string;
  list: Keyset<Row>;
  columns: Column<Row>[];
  rowKey: (row: Row) => string;
  empty: ReactNode;
  after: string | undefined;
  marked?: (row: Row) => boolean;
}

export function List<Row>({ label, list, columns, rowKey, empty, after, marked }: Props<Row>) {
  if (list.error && list.rows.length === 0)
    return (
      <div className={styles.pad}>
        <ProblemBox error={list.error} retry={list.retry} />
      </div>
    );
  if (list.pending) return <Skeleton lines={8} />;
  const nothing = list.rows.length === 0 && list.waiting === 0;
  return (
    <div className={list.stale ? styles.old : undefined} aria-busy={list.stale} {...list.area}>
      {list.waiting > 0 && after === undefined ? (
        <button type="button" className={styles.fresh} onClick={list.showNew}>
          <ArrowUp size={14} aria-hidden="true" /> {list.waiting} new
        </button>
      ) : null}
      {nothing && list.next === null ? empty : <Table label={label} columns={columns} rows={list.rows} rowKey={rowKey} marked={marked} />}
      {nothing && list.next !== null ? <p className={styles.pad}>Nothing found so far. Older ones may match.</p> : null}
      <Pager after={after} next={list.next} />
    </div>
  );
}

function Pager({ after, next }: { after: string | undefined; next: string | null }) {
  if (after === undefined && next === null) return null;
  return (
    <nav className={styles.pager} aria-label="Pages">
      {after === undefined ? <span className="muted">First page</span> : <PageLink to={undefined}>First page</PageLink>}
      {next === null ? <span className="muted">Last page</span> : <PageLink to={next}>Next page</PageLink>}
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
