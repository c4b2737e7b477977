// A table that becomes two lines per row on a phone.
import type { ReactNode } from "react";
import { Parts } from "./Parts";
import styles from "./Table.module.css";
import { type SortKey, useSorted } from "./useSorted";

export interface Column<Row> {
  key: string;
  head: ReactNode;
  cell: (row: Row) => ReactNode;
  /** On a phone: the first line, the second line, or nothing. */
  phone?: "first" | "second" | "none";
  align?: "end";
  /** Takes the room that is left, and cuts its text. */
  grow?: boolean;
  /** Text of users: it is cut where it is long. */
  cut?: boolean;
  /** How much room the table must have for this column: 1 is some, 3 is much. Without it the column always stays. */
  room?: 1 | 2 | 3;
  /** Makes the column one to sort by, where all rows are there. */
  by?: (row: Row) => SortKey;
  sorted?: "ascending" | "descending";
}

interface Props<Row> {
  label: string;
  columns: Column<Row>[];
  rows: Row[];
  rowKey: (row: Row) => string;
  /** How many rows are shown at once. */
  most?: number;
  marked?: (row: Row) => boolean;
  /** Whether the rows are all that there are. */
  whole?: boolean;
}

export function Table<Row>(props: Props<Row>) {
  const { rows, columns } = useSorted(props.rows, props.columns, props.whole ?? true);
  return (
    <Parts label={props.label} rows={rows} most={props.most}>
      {(shown) => <Shown {...props} columns={columns} rows={shown} />}
    </Parts>
  );
}

function Shown<Row>({ label, columns, rows, rowKey, marked }: Props<Row>) {
  return (
    <div className={styles.scroll} tabIndex={-1}>
      <table className={styles.table} role="table" aria-label={label}>
        <thead role="rowgroup">
          <tr role="row">
            {columns.map((column) => (
              <th key={column.key} role="columnheader" scope="col" aria-sort={column.sorted} className={classOf(column)}>
                {column.head}
              </th>
            ))}
          </tr>
        </thead>
        <tbody role="rowgroup">
          {rows.map((row) => (
            <tr key={rowKey(row)} role="row" data-row={rowKey(row)} className={marked?.(row) ? styles.marked : undefined}>
              {columns.map((column) => (
                <td key={column.key} role="cell" className={classOf(column)}>
                  {column.cell(row)}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function classOf<Row>(column: Column<Row>): string {
  return [
    column.align === "end" ? "num" : "",
    column.key === "verbs" ? styles.verbs : "",
    column.grow ? styles.grow : "",
    column.cut ? styles.cut : "",
    column.room ? styles[`room${column.room}`] : "",
    styles[column.phone ?? "second"],
  ].join(" ");
}
