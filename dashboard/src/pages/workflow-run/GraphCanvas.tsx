// Edges, and from far away also the nodes, on one canvas. What is out of sight is not drawn.
import { useEffect, useMemo, useRef } from "react";
import { type Layout, NODE_HEIGHT, NODE_WIDTH } from "../../lib/layout";
import { isDark } from "../../lib/preferences";
import { hueOf } from "../../ui/StateMark";
import type { Camera } from "./camera";
import styles from "./Graph.module.css";

interface Props {
  layout: Layout;
  camera: Camera;
  width: number;
  height: number;
  states: ReadonlyMap<string, string>;
  /** From far away nodes are drawn here, and are no buttons. */
  far: boolean;
  chosen: string | undefined;
}

interface Path {
  path: Path2D;
  color: string;
  left: number;
  right: number;
  top: number;
  bottom: number;
}

const EDGE_COLORS: Record<string, string> = { SUCCESS: "success", FAILED: "failed" };
const NODE_COLORS = { success: "success", failed: "failed", running: "accent", held: "held", idle: "edge" } as const;

export function GraphCanvas({ layout, camera, width, height, states, far, chosen }: Props) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const paths = useMemo(() => pathsOf(layout, states), [layout, states]);
  const dark = isDark();
  useEffect(() => {
    const element = canvas.current;
    const context = element?.getContext("2d");
    if (!element || !context || width === 0) return;
    const ratio = window.devicePixelRatio || 1;
    const [wide, high] = [Math.round(width * ratio), Math.round(height * ratio)];
    if (element.width !== wide || element.height !== high) [element.width, element.height] = [wide, high];
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.clearRect(0, 0, wide, high);
    context.setTransform(ratio * camera.zoom, 0, 0, ratio * camera.zoom, camera.x * ratio, camera.y * ratio);
    const css = getComputedStyle(document.documentElement);
    const token = (name: string): string => css.getPropertyValue(`--${name}`).trim();
    drawEdges(context, paths, viewOf(camera, width, height), camera.zoom, token);
    if (far) drawNodes(context, layout, states, viewOf(camera, width, height), chosen, token);
  }, [layout, paths, states, camera, width, height, far, chosen, dark]);
  return <canvas ref={canvas} className={styles.canvas} style={{ width: `${width}px`, height: `${height}px` }} aria-hidden="true" />;
}

interface View {
  left: number;
  right: number;
  top: number;
  bottom: number;
}

function viewOf(camera: Camera, width: number, height: number): View {
  return {
    left: -camera.x / camera.zoom, right: (width - camera.x) / camera.zoom, top: -camera.y / camera.zoom,
    bottom: (height - camera.y) / camera.zoom,
  };
}

function meets(box: View, view: View): boolean {
  return box.left <= view.right && box.right >= view.left && box.top <= view.bottom && box.bottom >= view.top;
}

function pathsOf(layout: Layout, states: ReadonlyMap<string, string>): Path[] {
  return layout.edges.map((edge) => {
    const path = new Path2D();
    edge.points.forEach(([x, y], index) => {
      const before = edge.points[index - 1];
      if (before === undefined) path.moveTo(x, y);
      else path.bezierCurveTo((before[0] + x) / 2, before[1], (before[0] + x) / 2, y, x, y);
    });
    const [xs, ys] = [edge.points.map(([x]) => x), edge.points.map(([, y]) => y)];
    return {
      path, color: EDGE_COLORS[states.get(edge.from) ?? ""] ?? "edge", left: Math.min(...xs), right: Math.max(...xs),
      top: Math.min(...ys), bottom: Math.max(...ys),
    };
  });
}

/** All edges of a colour with one stroke. */
function drawEdges(context: CanvasRenderingContext2D, paths: Path[], view: View, zoom: number, token: (name: string) => string): void {
  const byColor = new Map<string, Path2D>();
  for (const one of paths) {
    if (!meets(one, view)) continue;
    const all = byColor.get(one.color) ?? new Path2D();
    all.addPath(one.path);
    byColor.set(one.color, all);
  }
  context.lineWidth = zoom < 0.4 ? 1 / zoom : 1.5 / Math.max(0.5, zoom);
  context.globalAlpha = zoom < 0.4 ? 0.45 : 1;
  for (const [color, all] of byColor) {
    context.strokeStyle = token(color);
    context.stroke(all);
  }
  context.globalAlpha = 1;
}

/** Ended nodes are full, failed ones have a cross, others are frames: colour is not the only sign. */
function drawNodes(
  context: CanvasRenderingContext2D, layout: Layout, states: ReadonlyMap<string, string>, view: View, chosen: string | undefined,
  token: (name: string) => string,
): void {
  const ground = token("ground-0");
  for (const { id, x, y } of layout.nodes.values()) {
    if (!meets({ left: x, right: x + NODE_WIDTH, top: y, bottom: y + NODE_HEIGHT }, view)) continue;
    const hue = hueOf(states.get(id) ?? "");
    const color = token(NODE_COLORS[hue]);
    context.fillStyle = hue === "success" || hue === "failed" ? color : ground;
    context.fillRect(x, y, NODE_WIDTH, NODE_HEIGHT);
    context.lineWidth = id === chosen ? 14 : 6;
    context.strokeStyle = id === chosen ? token("accent") : color;
    context.strokeRect(x, y, NODE_WIDTH, NODE_HEIGHT);
    if (hue === "running") {
      context.fillStyle = color;
      context.fillRect(x, y, NODE_WIDTH / 2, NODE_HEIGHT);
    } else if (hue === "failed") {
      context.strokeStyle = ground;
      context.stroke(new Path2D(`M${x} ${y}l${NODE_WIDTH} ${NODE_HEIGHT}m0 -${NODE_HEIGHT}l-${NODE_WIDTH} ${NODE_HEIGHT}`));
    }
  }
}
