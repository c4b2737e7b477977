import { useState } from "react";
import { Copy } from "../../ui/Copy";
import { Choice } from "../../ui/Tabs";
import { commandOf, type Draft, requestOf } from "./draft";
import styles from "./JobForm.module.css";

/** The same job as a command or as JSON, to take along. */
export function AsText({ draft }: { draft: Draft }) {
  const [kind, setKind] = useState<"command" | "json">("command");
  const text = kind === "command" ? commandOf(draft) : JSON.stringify(requestOf(draft), null, 2);
  return (
    <details>
      <summary>As a command or JSON</summary>
      <div className={styles.part}>
        <Choice label="Form" value={kind} options={[["command", "Command"], ["json", "JSON"]]} onChange={setKind} />
        <pre className={styles.text}>
          {text} <Copy text={text} label="Copy" />
        </pre>
      </div>
    </details>
  );
}
