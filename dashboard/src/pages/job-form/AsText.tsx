import { useState } from "react";
import type { JobView } from "../../api/schema";
import { Copy } from "../../ui/Copy";
import { Choice } from "../../ui/Tabs";
import { commandOf } from "./command";
import { copyOf, type Draft, requestOf } from "./draft";
import styles from "./JobForm.module.css";

/** The same job as a command or as JSON, to take along. */
export function AsText({ draft, base }: { draft: Draft; base: JobView | undefined }) {
  const [chosen, setKind] = useState<"command" | "json">("command");
  const kind = draft.when === "event" ? "json" : chosen; // submit has no option for events
  const request = base === undefined ? requestOf(draft) : copyOf(base, draft);
  const text = kind === "command" ? commandOf(draft, base) : JSON.stringify(request, null, 2);
  return (
    <details>
      <summary>As a command or JSON</summary>
      <div className={styles.part}>
        {draft.when === "event" ? null : <Choice label="Form" value={kind} options={[["command", "Command"], ["json", "JSON"]]} onChange={setKind} />}
        <pre className={styles.text}>
          {text} <Copy text={text} label="Copy" />
        </pre>
      </div>
    </details>
  );
}
