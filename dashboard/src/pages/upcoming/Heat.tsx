// The heat map as a table: rows are days (or hours), columns hours (or five minutes). Shade and number say the same.
import type { HeatCell, HeatMap } from "../../api/schema";
import { Link } from "@tanstack/react-router";
import { count, tiny } from "../../lib/format";
import { day } from "../../lib/time";
import legend from "../../ui/Legend.module.css";
import styles from "./Upcoming.module.css";

export function Heat({ map }: { map: HeatMap }) {
  const fires = map.cells.map((cell) => cell.fires).filter((number) => number > 0).sort((a, b) => a - b);
  const scale: Scale = { least: fires[Math.floor(fires.length / 10)] ?? 0, most: fires.at(-1) ?? 1 };
  const rows = rowsOf(map);
  const columns = map.range === "week" ? 24 : 12;
  return (
    <>
    <Legend scale={scale} />
    <div className={styles.scroll} tabIndex={0} role="region" aria-label="Heat map">
      <table className={styles.heat}>
        <caption className="sr">Fires by {map.range === "week" ? "day and hour" : "hour and five minutes"}</caption>
        <thead>
          <tr>
            <td />
            {Array.from({ length: columns }, (_, index) => (
              <th key={index} scope="col">
                {String(map.range === "week" ? index : index * 5).padStart(2, "0")}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map(([name, cells]) => (
            <tr key={name}>
              <th scope="row">{name}</th>
              {Array.from({ length: columns }, (_, index) => (
                <Cells key={index} cells={cells.filter((cell) => columnOf(cell, map) === index)} scale={scale} />
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
    </>
  );
}

/** What the shades mean, from the emptiest tenth of the cells to the fullest cell. */
function Legend({ scale }: { scale: Scale }) {
  const { least, most } = scale;
  const marks = most <= least ? [most] : [...new Set([0, 0.25, 0.5, 1].map((part) => Math.round(least + part * (most - least))))];
  return (
    <p className={legend.legend} role="note" aria-label="Legend">
      Fires in a cell:
      {marks.map((fires, index) => (
        <span key={fires}>
          <i style={{ backgroundColor: `rgb(var(--heat) / ${shadeOf(levelOf(fires, scale))})` }} aria-hidden="true" />
          {index === 0 && marks.length > 1 ? "up to " : ""}
          {count(fires)}
        </span>
      ))}
      {alike(scale) ? <span>Each cell has about {count(least)}; its label is what it has beyond them.</span> : null}
      <span className="muted">Open a cell to see which jobs fire.</span>
    </p>
  );
}

interface Scale {
  least: number;
  most: number;
}

/** Whether most cells would have the same label. */
function alike({ least, most }: Scale): boolean {
  return most > least && least >= 1000 && tiny(least) === tiny(most);
}

function labelOf(fires: number, scale: Scale): string {
  return !alike(scale) || fires < least90(scale) ? tiny(fires) : fires > scale.least ? `+${tiny(fires - scale.least)}` : "·";
}

/** A cell that has begun, or that the clocks cut short, has fewer. */
function least90({ least }: Scale): number {
  return least * 0.9;
}

/** From 0.15 to 1. Jobs that fire all the time raise every cell, so the shade says what is above the emptiest tenth. */
function levelOf(fires: number, { least, most }: Scale): number {
  return most <= least ? (fires < least ? 0.15 : 0.4) : 0.15 + 0.85 * Math.sqrt(Math.max(0, fires - least) / (most - least));
}

/** Between the two ranges neither light nor dark text has enough contrast. */
function shadeOf(level: number): number {
  return level > 0.7 ? 0.82 + 0.6 * (level - 0.7) : 0.12 + 0.62 * level;
}

/** An hour that the clocks repeat has two cells in one place; one that they skip has none. */
function Cells({ cells, scale }: { cells: HeatCell[]; scale: Scale }) {
  const fires = cells.reduce((sum, cell) => sum + cell.fires, 0);
  if (cells.length === 0) return <td className={styles.none} />;
  const level = levelOf(fires, scale);
  const strong = level > 0.7;
  return (
    <td
      className={strong ? styles.strong : undefined} style={{ backgroundColor: fires === 0 ? undefined : `rgb(var(--heat) / ${shadeOf(level)})` }}
      title={`${cells.map((cell) => cell.local).join(" and ")}: ${count(fires)} fires`}
    >
      {fires === 0 || cells[0] === undefined ? (
        ""
      ) : (
        <Link
          to="/upcoming" search={(old: Record<string, unknown>) => ({ ...old, at: cells[0]?.at }) as never} resetScroll={false}
          aria-label={`${labelOf(fires, scale)}: ${count(fires)} fires from ${cells[0].local.slice(5, 16).replace("T", " ")}`}
        >
          {labelOf(fires, scale)}
        </Link>
      )}
      {cells.length > 1 ? <sup title="the clocks repeat this hour">2×</sup> : null}
    </td>
  );
}

function columnOf(cell: HeatCell, map: HeatMap): number {
  return map.range === "week" ? Number(cell.local.slice(11, 13)) : Math.floor(Number(cell.local.slice(14, 16)) / 5);
}

/** Tue 17 Nov. The text is the local date, so the zone plays no part. */
function dayOf(local: string): string {
  return day(Date.parse(`${local.slice(0, 10)}T12:00:00Z`), "UTC");
}

function rowsOf(map: HeatMap): [string, HeatCell[]][] {
  const rows = new Map<string, HeatCell[]>();
  for (const cell of map.cells) {
    const name = map.range === "week" ? dayOf(cell.local) : `${dayOf(cell.local).slice(0, 3)} ${cell.local.slice(11, 13)}:00`;
    rows.set(name, [...(rows.get(name) ?? []), cell]);
  }
  return [...rows];
}
