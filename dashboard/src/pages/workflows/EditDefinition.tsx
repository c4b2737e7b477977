// The steps as text beside their graph. The server checks them after each pause in typing, and a problem names its line.
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { useNavigate } from "@tanstack/react-router";
import { useEffect, useMemo, useRef, useState } from "react";
import { change, post, Refused } from "../../api/client";
import type { StepIn, WorkflowCheck, WorkflowView } from "../../api/schema";
import { plural } from "../../lib/format";
import { readYaml, YamlError } from "../../lib/yaml/read";
import { writeYaml } from "../../lib/yaml/write";
import { Button } from "../../ui/Button";
import { Confirm } from "../../ui/Dialog";
import { Card } from "../../ui/Page";
import { say } from "../../ui/Toasts";
import { Graph } from "../workflow-run/Graph";
import { doesOf } from "./doesOf";
import styles from "./EditDefinition.module.css";

const PAUSE_MS = 300;

interface Typed {
  steps: StepIn[];
  parameters: Record<string, unknown>;
}

interface Wrong {
  line: number;
  text: string;
}

type Read = { typed: Typed; lines: Map<string, number>; wrong: null } | { typed: null; wrong: Wrong };

function read(text: string): Read {
  try {
    const { value: read, lines } = readYaml(text);
    const value = read as Partial<Typed> | null;
    if (typeof value !== "object" || value === null || !Array.isArray(value.steps)) return { typed: null, wrong: { line: 1, text: "It needs `steps:` and a list of them." } };
    return { typed: { steps: value.steps, parameters: value.parameters ?? {} }, lines, wrong: null };
  } catch (error) {
    if (!(error instanceof YamlError)) throw error;
    return { typed: null, wrong: { line: error.line, text: error.message } };
  }
}

/** The line of a field, or of the nearest thing that has it. */
function lineOf(lines: Map<string, number>, field: string): number {
  for (let path = field; path !== ""; path = path.replace(/(\.[^.[]+|\[\d+\]|^[^.[]+)$/, "")) {
    const line = lines.get(path);
    if (line !== undefined) return line;
  }
  return 1;
}

export function EditDefinition({ flow, path }: { flow: WorkflowView; path: string }) {
  const [text, setText] = useState(() => writeYaml({ parameters: flow.parameters, steps: flow.steps }));
  const [seen] = useState(flow.version);
  const [checked, setChecked] = useState(text);
  const [asking, setAsking] = useState(false);
  const [shown, setShown] = useState(() => read(text).typed);
  const client = useQueryClient();
  const navigate = useNavigate();
  const now = useMemo(() => read(text), [text]);
  useEffect(() => {
    const timer = window.setTimeout(() => {
      setChecked(text);
      if (now.typed) setShown(now.typed);
    }, PAUSE_MS);
    return () => window.clearTimeout(timer);
  }, [text]);
  const check = useQuery({
    queryKey: ["workflow-check", checked],
    queryFn: () => post<WorkflowCheck>("/v1/workflows:validate", { ...read(checked).typed, queue: flow.queue }),
    enabled: now.typed !== null && checked === text,
    retry: false,
  });
  const refused = check.error instanceof Refused ? check.error.problem : null;
  const wrong: Wrong | null = now.wrong ?? (refused ? { line: lineOf(now.wrong === null ? now.lines : new Map(), refused.field ?? ""), text: `${refused.field ? `${refused.field}: ` : ""}${refused.detail}${refused.hint ? `. ${refused.hint}` : ""}` } : null);
  const good = wrong === null && checked === text && check.data !== undefined;
  const show = (): void => void navigate({ to: "/workflows/$workflow", params: { workflow: flow.workflow_id }, search: { view: "definition" } as never });
  const act = async (): Promise<void> => {
    await change("PATCH", path, seen, now.typed);
    say(`${flow.name} is changed. Runs that have fired keep the definition before.`);
    await client.invalidateQueries({ queryKey: ["workflow", flow.workflow_id] });
    show();
  };
  return (
    <div className={styles.sided}>
      <Card title="Steps and parameters, as YAML" aside={<State good={good} wrong={wrong} check={check.data} />}>
        <Editor text={text} set={setText} wrong={wrong} />
        <p className={styles.buttons}>
          <Button kind="primary" disabled={!good} onClick={() => setAsking(true)}>Save…</Button>
          <Button onClick={show}>Leave it as it is</Button>
        </p>
      </Card>
      {shown ? <Live steps={shown.steps} /> : null}
      {asking && now.typed ? (
        <Confirm
          title={`Change ${flow.name}?`} verb="Change the workflow" act={act} onClose={() => setAsking(false)} onConflict={() => void client.invalidateQueries({ queryKey: ["workflow", flow.workflow_id] })}
          creator={flow.created_by?.id ?? null} same={{ command: ["workflow", "apply", "workflow.json"], method: "PATCH", path, body: now.typed, python: ["update_workflow", flow.workflow_id], named: { ...now.typed } }}
        >
          <p>It has {plural(now.typed.steps.length, "step")} from its next run on. Runs that have fired keep the definition that they were fired with.</p>
        </Confirm>
      ) : null}
    </div>
  );
}

function State({ good, wrong, check }: { good: boolean; wrong: Wrong | null; check: WorkflowCheck | undefined }) {
  if (wrong) return <span className={styles.bad}>line {wrong.line}</span>;
  if (!good || !check) return <span className="muted">checking…</span>;
  return <span className="muted">valid: {plural(check.steps, "step")}, {plural(check.layers, "layer")}</span>;
}

/** A text with the numbers of its lines. */
function Editor({ text, set, wrong }: { text: string; set: (text: string) => void; wrong: Wrong | null }) {
  const numbers = useRef<HTMLPreElement>(null);
  const area = useRef<HTMLTextAreaElement>(null);
  const lines = text.split("\n").length;
  const go = (line: number): void => {
    const start = text.split("\n").slice(0, line - 1).join("\n").length + (line > 1 ? 1 : 0);
    area.current?.focus();
    area.current?.setSelectionRange(start, start + (text.split("\n")[line - 1] ?? "").length);
  };
  return (
    <>
      <div className={styles.editor}>
        <pre ref={numbers} aria-hidden="true" className={styles.numbers}>
          {Array.from({ length: lines }, (_, index) => (
            <span key={index} className={wrong?.line === index + 1 ? styles.wrong : undefined}>{index + 1}{"\n"}</span>
          ))}
        </pre>
        <textarea
          ref={area} aria-label="Steps and parameters" spellCheck={false} wrap="off" value={text} aria-invalid={wrong !== null} aria-describedby="definition-problem"
          onChange={(event) => set(event.target.value)} onScroll={(event) => numbers.current?.scrollTo(0, event.currentTarget.scrollTop)}
        />
      </div>
      <p id="definition-problem" role="status" className={wrong ? styles.bad : "muted"}>
        {wrong ? <><Button kind="quiet" onClick={() => go(wrong.line)}>Line {wrong.line}</Button> {wrong.text}</> : "JSON is read, too. Nothing is stored before you save; comments are not kept."}
      </p>
    </>
  );
}

function Live({ steps }: { steps: StepIn[] }) {
  const named = steps.filter((step) => typeof step?.name === "string");
  const names = new Set(named.map((step) => step.name));
  const unique = named.filter((step, index) => named.findIndex((one) => one.name === step.name) === index);
  const edges = unique.flatMap((step) => (Array.isArray(step.depends_on) ? step.depends_on : []).filter((parent) => names.has(parent)).map((parent): [string, string] => [parent, step.name]));
  const shape = JSON.stringify([[...names], edges]);
  return (
    <Card title={plural(unique.length, "step")} aside={<span className="muted">as it is typed</span>}>
      {unique.length > 300 ? <p className="muted">A graph of more than 300 steps is not drawn while one types.</p> : (
        <Graph key={shape} shape={shape} steps={unique.map((step) => ({ name: step.name, status: null, does: doesOf(step) }))} edges={edges} chosen={undefined} onChoose={() => undefined} />
      )}
    </Card>
  );
}
