// The graph: nodes in view are buttons, edges are one canvas behind them. Drag or scroll to move, buttons to zoom.
import { Maximize, Minus, Plus } from "lucide-react";
import { type PointerEvent, useEffect, useMemo, useRef, useState, type WheelEvent } from "react";
import type { StepRunView, WorkflowRunView } from "../../api/schema";
import { duration } from "../../lib/format";
import { type Layout, layOut, NODE_HEIGHT, NODE_WIDTH } from "../../lib/layout";
import { isDark } from "../../lib/preferences";
import { Button } from "../../ui/Button";
import { hueOf, StateShape, words } from "../../ui/StateMark";
import hues from "../../ui/hues.module.css";
import styles from "./Graph.module.css";
import { isCounted, membersOf } from "./members";

interface Camera {
  x: number;
  y: number;
  zoom: number;
}

const HEIGHT = 480;

export function Graph({ run, chosen, onChoose }: { run: WorkflowRunView; chosen: string | undefined; onChoose: (name: string) => void }) {
  const shape = `${run.workflow_id} ${run.definition_version} ${run.steps.length}`;
  const layout = useMemo(() => layOut(run.steps.map((step) => step.name), run.edges as [string, string][]), [shape]);
  const box = useRef<HTMLDivElement>(null);
  const [width, setWidth] = useState(0);
  const [camera, setCamera] = useState<Camera | null>(null);
  const drag = useRef<{ x: number; y: number } | null>(null);
  const height = Math.min(HEIGHT, Math.max(160, layout.height + 64));
  const shown = camera ?? fitted(layout, width, height);
  useEffect(() => {
    const element = box.current;
    if (element === null) return;
    const watch = new ResizeObserver(() => setWidth(element.clientWidth));
    watch.observe(element);
    return () => watch.disconnect();
  }, []);
  const zoomBy = (factor: number): void => {
    const zoom = Math.min(2, Math.max(0.1, shown.zoom * factor));
    const [cx, cy] = [width / 2, height / 2];
    setCamera({ zoom, x: cx - ((cx - shown.x) / shown.zoom) * zoom, y: cy - ((cy - shown.y) / shown.zoom) * zoom });
  };
  const wheel = (event: WheelEvent): void => {
    if (event.ctrlKey) zoomBy(event.deltaY < 0 ? 1.1 : 0.9);
    else if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) setCamera({ ...shown, x: shown.x - (event.deltaX || event.deltaY) });
  };
  const move = (event: PointerEvent): void => {
    if (drag.current === null) return;
    setCamera({ ...shown, x: event.clientX - drag.current.x, y: event.clientY - drag.current.y });
  };
  const inView = run.steps.filter((step) => visible(layout, step.name, shown, width, height));
  return (
    <div className={styles.frame}>
      <div
        ref={box} className={styles.box} style={{ height: `${height}px` }} role="group" aria-label="Graph of the steps" onWheel={wheel}
        onPointerDown={(event) => {
          if ((event.target as Element).closest("button") === null) drag.current = { x: event.clientX - shown.x, y: event.clientY - shown.y };
        }}
        onPointerMove={move} onPointerUp={() => (drag.current = null)} onPointerLeave={() => (drag.current = null)}
      >
        <Edges layout={layout} camera={shown} width={width} height={height} states={new Map(run.steps.map((step) => [step.name, step.status ?? ""]))} />
        <div className={styles.nodes} style={{ transform: `translate(${shown.x}px, ${shown.y}px) scale(${shown.zoom})` }}>
          {inView.map((step) => (
            <GraphNode key={step.name} step={step} layout={layout} current={step.name === chosen} onChoose={onChoose} />
          ))}
        </div>
      </div>
      <div className={styles.tools}>
        <Button icon={<Plus size={14} />} aria-label="Nearer" onClick={() => zoomBy(1.25)} />
        <Button icon={<Minus size={14} />} aria-label="Farther" onClick={() => zoomBy(0.8)} />
        <Button icon={<Maximize size={14} />} aria-label="Show all" onClick={() => setCamera(null)} />
      </div>
    </div>
  );
}

function GraphNode({ step, layout, current, onChoose }: { step: StepRunView; layout: Layout; current: boolean; onChoose: (name: string) => void }) {
  const at = layout.nodes.get(step.name);
  if (at === undefined) return null;
  const state = step.status ?? "WAITING";
  const map = step.map;
  return (
    <button
      type="button" className={`${styles.node} ${hues[hueOf(state)]} ${styles[hueOf(state)] ?? ""} ${current ? styles.current : ""}`} onClick={() => onChoose(step.name)}
      style={{ left: `${at.x}px`, top: `${at.y}px`, width: `${NODE_WIDTH}px`, height: `${NODE_HEIGHT}px` }}
      aria-label={`${step.name}: ${words(state)}`} aria-pressed={current} data-step={step.name} data-state={state}
    >
      <StateShape state={state} />
      <span className={styles.texts}>
        <span className="cut">{step.name}</span>
        <span className={styles.note}>{map ? membersOf(step) : `${words(state)} ${duration(step.duration)}`}</span>
      </span>
      {map && map.total && isCounted(step) ? (
        <span className={styles.bar} aria-hidden="true">
          <span className={styles.good} style={{ width: `${(map.succeeded / map.total) * 100}%` }} />
          <span className={styles.bad} style={{ width: `${(map.failed / map.total) * 100}%` }} />
        </span>
      ) : null}
    </button>
  );
}

function Edges({ layout, camera, width, height, states }: { layout: Layout; camera: Camera; width: number; height: number; states: Map<string, string> }) {
  const canvas = useRef<HTMLCanvasElement>(null);
  useEffect(() => {
    const element = canvas.current;
    const context = element?.getContext("2d");
    if (!element || !context || width === 0) return;
    const ratio = window.devicePixelRatio || 1;
    element.width = width * ratio;
    element.height = height * ratio;
    context.setTransform(ratio * camera.zoom, 0, 0, ratio * camera.zoom, camera.x * ratio, camera.y * ratio);
    const css = getComputedStyle(document.documentElement);
    const color = { SUCCESS: css.getPropertyValue("--success"), FAILED: css.getPropertyValue("--failed"), other: css.getPropertyValue("--edge") };
    context.lineWidth = 1.5 / Math.max(0.5, camera.zoom);
    for (const edge of layout.edges) {
      const state = states.get(edge.from);
      context.strokeStyle = state === "SUCCESS" ? color.SUCCESS : state === "FAILED" ? color.FAILED : color.other;
      context.beginPath();
      edge.points.forEach(([x, y], index) => {
        const before = edge.points[index - 1];
        if (before === undefined) context.moveTo(x, y);
        else context.bezierCurveTo((before[0] + x) / 2, before[1], (before[0] + x) / 2, y, x, y);
      });
      context.stroke();
    }
  }, [layout, camera.x, camera.y, camera.zoom, width, height, states, isDark()]);
  return <canvas ref={canvas} className={styles.canvas} style={{ width: `${width}px`, height: `${height}px` }} aria-hidden="true" />;
}

function fitted(layout: Layout, width: number, height: number): Camera {
  const zoom = Math.min(1, (width - 48) / Math.max(1, layout.width), (height - 48) / Math.max(1, layout.height));
  const readable = Math.max(zoom, 0.45);
  return { zoom: readable, x: Math.max(24, (width - layout.width * readable) / 2), y: Math.max(24, (height - layout.height * readable) / 2) };
}

function visible(layout: Layout, name: string, camera: Camera, width: number, height: number): boolean {
  const at = layout.nodes.get(name);
  if (at === undefined) return false;
  const [x, y] = [at.x * camera.zoom + camera.x, at.y * camera.zoom + camera.y];
  return x > -NODE_WIDTH && y > -NODE_HEIGHT && x < width && y < height;
}
