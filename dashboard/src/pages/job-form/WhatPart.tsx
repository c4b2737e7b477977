import { useQuery } from "@tanstack/react-query";
import { tasksQuery, useSchema } from "../../api/queries";
import { Field, Select, TextArea } from "../../ui/Field";
import { MOST_ROWS } from "../../ui/Parts";
import { PayloadEditor } from "../../ui/PayloadEditor";
import { Choice } from "../../ui/Tabs";
import type { Draft, Set, What } from "./draft";
import styles from "./JobForm.module.css";

export function WhatPart({ draft, set, problems }: { draft: Draft; set: Set; problems: Record<string, string> }) {
  const tasks = useQuery(tasksQuery);
  const schema = useSchema(draft.task || undefined);
  const names = (tasks.data?.tasks ?? []).map((task) => task.task).filter((task) => task !== "shell" && task !== "http" && task.includes(draft.task));
  return (
    <div className={styles.part}>
      <Choice<What>
        label="What it runs" value={draft.what} options={[["shell", "Command"], ["task", "Task"], ["http", "HTTP call"]]}
        onChange={(what) => set({ what })}
      />
      {draft.what === "shell" ? (
        <TextArea
          label="Command" required rows={4} value={draft.command} problem={problems["command"]} placeholder="echo hello"
          onChange={(event) => set({ command: event.target.value })}
        />
      ) : null}
      {draft.what === "task" ? (
        <>
          <Field
            label="Task" required list="tasks" value={draft.task} problem={problems["task"]} help="tasks that live workers offer are proposed"
            onChange={(event) => set({ task: event.target.value })}
          />
          <datalist id="tasks">
            {names.slice(0, MOST_ROWS).map((name) => (
              <option key={name} value={name} />
            ))}
          </datalist>
          <PayloadEditor schema={schema} text={draft.payload} onChange={(payload) => set({ payload })} problems={problems} />
        </>
      ) : null}
      {draft.what === "http" ? (
        <div className={styles.grid}>
          <Select
            label="Method" value={draft.method} options={["GET", "POST", "PUT", "PATCH", "DELETE"].map((one) => [one, one])}
            onChange={(event) => set({ method: event.target.value })}
          />
          <Field label="URL" type="url" required value={draft.url} problem={problems["http.url"] ?? problems["http"]} onChange={(event) => set({ url: event.target.value })} />
        </div>
      ) : null}
    </div>
  );
}
