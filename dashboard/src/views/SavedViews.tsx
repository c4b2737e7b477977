// Saved views of a list: a filter and columns with a name. The address has the filter, and which view it came from.
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { Bookmark, Trash2 } from "lucide-react";
import { useState } from "react";
import { call, change, get } from "../api/client";
import { useMay } from "../api/session";
import type { ViewList, ViewView } from "../api/schema";
import type { Same } from "../ui/AsCommand";
import { Button } from "../ui/Button";
import { Confirm } from "../ui/Dialog";
import { Choices, Field } from "../ui/Field";
import { useSetSearch } from "../ui/Filters";
import type { Column } from "../ui/Table";
import { say } from "../ui/Toasts";
import styles from "./SavedViews.module.css";

export type ViewedList = ViewView["list"];
type Search = Partial<Record<string, string>>;

const MOST = 200;
const ALWAYS = ["pick", "verbs"];

const viewsQuery = (list: ViewedList) => ({
  queryKey: ["views", list],
  queryFn: ({ signal }: { signal: AbortSignal }) => get<ViewList>("/v1/views", { list, limit: MOST }, signal),
  staleTime: 60_000,
  retry: false,
});

interface Props {
  list: ViewedList;
  /** The parameters of the address that are the filter of the list. */
  names: readonly string[];
  search: Search;
  columns: readonly Column<never>[];
}

export function SavedViews({ list, names, search, columns }: Props) {
  const found = useQuery(viewsQuery(list));
  const set = useSetSearch();
  const [asks, setAsks] = useState<"save" | "delete" | null>(null);
  const maySave = useMay("views.put");
  const views = found.data?.views ?? [];
  const chosen = views.find((view) => view.name === search["view"]);
  const filter = Object.fromEntries(names.flatMap((name) => (search[name] === undefined ? [] : [[name, search[name] ?? ""]])));
  const choose = (name: string): void => {
    const view = views.find((one) => one.name === name);
    const none = Object.fromEntries(names.map((one) => [one, undefined]));
    set({ ...none, ...Object.fromEntries(Object.entries(view?.filter ?? {}).filter(([one]) => names.includes(one))), view: view?.name }, true);
  };
  if (found.data === undefined || (views.length === 0 && !maySave)) return null; // a narrowed token sees no views
  return (
    <div className={styles.views} role="group" aria-label="Saved views">
      {views.length > 0 ? (
        <select aria-label="View" className={styles.select} value={chosen?.name ?? ""} onChange={(event) => choose(event.target.value)}>
          <option value="">View: none</option>
          {views.map((view) => (
            <option key={view.name} value={view.name}>
              {view.name}
            </option>
          ))}
        </select>
      ) : null}
      {maySave ? (
        <Button kind="quiet" icon={<Bookmark size={14} />} onClick={() => setAsks("save")}>
          Save view
        </Button>
      ) : null}
      {chosen && maySave ? (
        <Button kind="quiet" icon={<Trash2 size={14} />} onClick={() => setAsks("delete")}>
          Delete view
        </Button>
      ) : null}
      {asks === "save" ? <Save list={list} filter={filter} chosen={chosen} views={views} columns={columns} onClose={() => setAsks(null)} /> : null}
      {asks === "delete" && chosen ? <Delete view={chosen} onClose={() => setAsks(null)} /> : null}
    </div>
  );
}

/** The columns of the view that the address names; all of them without one. */
export function useViewColumns<Row>(list: ViewedList, view: string | undefined, columns: Column<Row>[]): Column<Row>[] {
  const found = useQuery({ ...viewsQuery(list), enabled: view !== undefined });
  const shown = found.data?.views.find((one) => one.name === view)?.columns ?? [];
  const kept = columns.filter((column) => ALWAYS.includes(column.key) || shown.includes(column.key));
  // What somebody asked for does not give way to a narrow window.
  return shown.length === 0 ? columns : kept.map((column) => ({ ...column, room: undefined }) as Column<Row>);
}

function pathOf(name: string): string {
  return `/v1/views/${encodeURIComponent(name)}`;
}

interface SaveProps {
  list: ViewedList;
  filter: Record<string, string>;
  chosen: ViewView | undefined;
  views: ViewView[];
  columns: readonly Column<never>[];
  onClose: () => void;
}

function Save({ list, filter, chosen, views, columns, onClose }: SaveProps) {
  const client = useQueryClient();
  const set = useSetSearch();
  const [name, setName] = useState(chosen?.name ?? "");
  const options = columns.filter((column) => !ALWAYS.includes(column.key)).map((column): [string, string] => [column.key, String(column.head)]);
  const [picked, setPicked] = useState(chosen?.columns ?? []);
  const trimmed = name.trim();
  const known = views.find((view) => view.name === trimmed);
  const body = { list, filter, columns: picked };
  const act = async (): Promise<void> => {
    if (known) await change("PUT", pathOf(trimmed), known.version, body);
    else await call("PUT", pathOf(trimmed), { body });
    await client.invalidateQueries({ queryKey: ["views"] });
    say(`The view ${trimmed} is saved for everybody in the tenant.`);
    set({ view: trimmed });
  };
  const words = Object.entries(filter).map(([one, value]) => `${one}=${value}`);
  const same: Same = {
    command: ["view", "set", trimmed, "--of", list, ...words.flatMap((one) => ["--filter", one]), ...picked.flatMap((one) => ["--column", one])],
    method: "PUT", path: pathOf(trimmed), body, python: ["set_view", trimmed, list, filter, picked],
  };
  return (
    <Confirm title="Save this view" verb={known ? "Replace it" : "Save"} act={act} onClose={onClose} operation="views.put" same={same}>
      <p className="wrap">Everybody in the tenant sees it. Its filter: {words.length === 0 ? "none" : words.join(", ")}.</p>
      <Field label="Name" required value={name} onChange={(event) => setName(event.target.value)} maxLength={100} help={known ? "there is a view of this name; it is replaced" : "such as: Failing, of BI"} />
      <Choices label="Columns" help="none chosen: as many as there is room for" options={options} chosen={picked} onChange={setPicked} />
    </Confirm>
  );
}

function Delete({ view, onClose }: { view: ViewView; onClose: () => void }) {
  const client = useQueryClient();
  const set = useSetSearch();
  const act = async (): Promise<void> => {
    await change("DELETE", pathOf(view.name), view.version);
    set({ view: undefined });
    await client.invalidateQueries({ queryKey: ["views"] });
    say(`The view ${view.name} is deleted.`);
  };
  const same: Same = { command: ["view", "delete", view.name], method: "DELETE", path: pathOf(view.name), python: ["delete_view", view.name] };
  return (
    <Confirm title={`Delete the view ${view.name}?`} verb="Delete the view" danger act={act} onClose={onClose} operation="views.delete" same={same}>
      <p>Nobody in the tenant has it any more. What it lists stays as it is.</p>
    </Confirm>
  );
}
