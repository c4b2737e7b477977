// Verbs on the ticked rows, or on all that match. Each asks with the count.
import { useState } from "react";
import { Button } from "../ui/Button";
import { ActDialog } from "./ActDialog";
import { type Chosen, type Filter, NOUNS, type Target, type Verb, VERBS } from "./acts";
import styles from "./Bulk.module.css";
import type { Selection } from "./useSelection";

interface Props<Row> {
  target: Target;
  selection: Selection<Row>;
  filter: Filter;
  id: (row: Row) => string;
  name: (row: Row) => string;
}

interface Asked {
  verb: Verb;
  chosen: Chosen;
}

export function BulkBar<Row>({ target, selection, filter, id, name }: Props<Row>) {
  const [asked, setAsked] = useState<Asked | null>(null);
  const { picked, all } = selection;
  const chosen = (): Chosen => (all ? { filter } : { ids: picked.map(id), names: picked.map(name) });
  if (picked.length === 0 && !all && asked === null) return null;
  return (
    <>
      {picked.length > 0 || all ? (
        <div className={styles.bar} role="toolbar" aria-label={`Verbs for the selected ${NOUNS[target]}s`}>
          <strong>{all ? "All that match are selected" : `${picked.length} selected`}</strong>
          {all ? null : (
            <Button kind="quiet" onClick={selection.chooseAll}>
              Select all that match
            </Button>
          )}
          {VERBS[target].map((verb) => (
            <Button key={verb.name} kind={verb.danger ? "danger" : "plain"} onClick={() => setAsked({ verb, chosen: chosen() })}>
              {verb.label}
            </Button>
          ))}
          <Button kind="quiet" onClick={selection.clear}>
            Select none
          </Button>
        </div>
      ) : null}
      {asked ? <ActDialog target={target} {...asked} onClose={() => setAsked(null)} onDone={selection.clear} /> : null}
    </>
  );
}
