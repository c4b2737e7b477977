// The graph: nodes in view are buttons, edges are one canvas behind them. From far away all is on the canvas. Drag to
// move, Ctrl and the wheel or the buttons to zoom.
import { Maximize, Minus, Plus } from "lucide-react";
import { type PointerEvent, useCallback, useEffect, useMemo, useRef, useState } from "react";
import { layOut } from "../../lib/layout";
import { Button } from "../../ui/Button";
import { words } from "../../ui/StateMark";
import { fitted, inView, nodeAt, useCamera, zoomed } from "./camera";
import styles from "./Graph.module.css";
import { GraphCanvas } from "./GraphCanvas";
import { GraphNode, type GraphStep } from "./GraphNode";

const HEIGHT = 480;
const FAR = 0.4; // the words of a node are smaller than 6 px
const CLICK_PX = 4;

interface Drag {
  x: number;
  y: number;
  moved: number;
}

interface Props {
  /** Changes with the names of the steps and the edges: only then is the graph laid out anew. */
  shape: string;
  steps: GraphStep[];
  edges: [string, string][];
  chosen: string | undefined;
  onChoose: (name: string) => void;
}

export function Graph({ shape, steps, edges, chosen, onChoose }: Props) {
  const layout = useMemo(() => layOut(steps.map((step) => step.name), edges), [shape]);
  const states = useMemo(() => new Map(steps.map((step) => [step.name, step.status ?? "WAITING"])), [steps]);
  const box = useRef<HTMLDivElement>(null);
  const [width, setWidth] = useState(0);
  const drag = useRef<Drag | null>(null);
  const height = Math.min(HEIGHT, Math.max(160, layout.height + 64));
  const start = useMemo(() => fitted(layout, width, height, width < 640 ? 0.7 : 0.45), [layout, width, height]);
  const [camera, move] = useCamera(start);
  const far = camera.zoom < FAR;
  const newest = useRef(onChoose);
  newest.current = onChoose;
  const choose = useCallback((name: string) => newest.current(name), []);
  useEffect(() => {
    const element = box.current;
    if (element === null) return;
    const watch = new ResizeObserver(() => setWidth(element.clientWidth));
    watch.observe(element);
    const wheel = (event: WheelEvent): void => {
      const [x, y] = placeIn(element, event);
      if (event.ctrlKey) {
        event.preventDefault(); // the browser would zoom the page
        move((old) => zoomed(old, event.deltaY < 0 ? 1.1 : 0.9, x, y));
      } else if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
        event.preventDefault();
        move((old) => ({ ...old, x: old.x - (event.deltaX || event.deltaY) }));
      }
    };
    element.addEventListener("wheel", wheel, { passive: false });
    return () => {
      watch.disconnect();
      element.removeEventListener("wheel", wheel);
    };
  }, [move]);
  const zoomBy = (factor: number): void => move((old) => zoomed(old, factor, width / 2, height / 2));
  const down = (event: PointerEvent): void => {
    if ((event.target as Element).closest("button") === null) drag.current = { x: event.clientX, y: event.clientY, moved: 0 };
  };
  const drawn = (event: PointerEvent): void => {
    const from = drag.current;
    if (from === null) {
      if (far && box.current) box.current.title = titleOf(nodeAt(layout, camera, ...placeIn(box.current, event)), states);
      return;
    }
    const [dx, dy] = [event.clientX - from.x, event.clientY - from.y];
    drag.current = { x: event.clientX, y: event.clientY, moved: from.moved + Math.abs(dx) + Math.abs(dy) };
    move((old) => ({ ...old, x: old.x + dx, y: old.y + dy }));
  };
  const up = (event: PointerEvent): void => {
    const clicked = drag.current !== null && drag.current.moved < CLICK_PX;
    drag.current = null;
    const name = far && clicked && box.current ? nodeAt(layout, camera, ...placeIn(box.current, event)) : null;
    if (name !== null) choose(name);
  };
  const shown = far ? [] : steps.filter((step) => inView(layout, step.name, camera, width, height));
  return (
    <div className={styles.frame}>
      <div
        ref={box} className={styles.box} style={{ height: `${height}px` }} role="group" aria-label="Graph of the steps" onPointerDown={down}
        onPointerMove={drawn} onPointerUp={up} onPointerLeave={() => (drag.current = null)}
      >
        <GraphCanvas layout={layout} camera={camera} width={width} height={height} states={states} far={far} chosen={chosen} />
        <div className={styles.nodes} style={{ transform: `translate(${camera.x}px, ${camera.y}px) scale(${camera.zoom})` }}>
          {shown.map((step) => {
            const at = layout.nodes.get(step.name);
            return at === undefined ? null : <GraphNode key={step.name} step={step} at={at} current={step.name === chosen} onChoose={choose} />;
          })}
        </div>
      </div>
      <div className={styles.tools}>
        <Button icon={<Plus size={14} />} aria-label="Nearer" onClick={() => zoomBy(1.25)} />
        <Button icon={<Minus size={14} />} aria-label="Farther" onClick={() => zoomBy(0.8)} />
        <Button icon={<Maximize size={14} />} aria-label="Show all" onClick={() => move(() => fitted(layout, width, height, 0))} />
      </div>
    </div>
  );
}

function placeIn(element: HTMLElement, event: { clientX: number; clientY: number }): [number, number] {
  const frame = element.getBoundingClientRect();
  return [event.clientX - frame.left, event.clientY - frame.top];
}

function titleOf(name: string | null, states: ReadonlyMap<string, string>): string {
  return name === null ? "" : `${name}: ${words(states.get(name) ?? "WAITING")}`;
}
