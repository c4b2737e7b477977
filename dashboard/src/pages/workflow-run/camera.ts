// Where one looks at a graph from: moved once a frame, however many events come.
import { useCallback, useEffect, useRef, useState } from "react";
import { type Layout, NODE_HEIGHT, NODE_WIDTH, type Placed } from "../../lib/layout";

export interface Camera {
  x: number;
  y: number;
  zoom: number;
}

const MARGIN = 24;
const LEAST = 0.05;
const MOST = 2;

/** All of the graph. Below `least` its words could not be read, so then its beginning. */
export function fitted(layout: Layout, width: number, height: number, least: number): Camera {
  const room = 2 * MARGIN;
  const all = Math.min(1, (width - room) / Math.max(1, layout.width), (height - room) / Math.max(1, layout.height));
  const zoom = Math.max(all, least, LEAST);
  const x = Math.max(MARGIN, (width - layout.width * zoom) / 2);
  if (layout.height * zoom <= height - room) return { zoom, x, y: (height - layout.height * zoom) / 2 };
  // Too high for the frame: the first step stands in the middle, and not somewhere below it.
  const first = [...layout.nodes.values()].reduce<Placed | null>((best, node) => (best === null || node.x < best.x ? node : best), null);
  const middle = first === null ? 0 : (first.y + NODE_HEIGHT / 2) * zoom;
  return { zoom, x, y: Math.min(MARGIN, Math.max(height - MARGIN - layout.height * zoom, height / 2 - middle)) };
}

/** The same view from nearer or farther. The point (cx, cy) stays where it is. */
export function zoomed(camera: Camera, factor: number, cx: number, cy: number): Camera {
  const zoom = Math.min(MOST, Math.max(LEAST, camera.zoom * factor));
  return { zoom, x: cx - ((cx - camera.x) / camera.zoom) * zoom, y: cy - ((cy - camera.y) / camera.zoom) * zoom };
}

export function inView(layout: Layout, name: string, camera: Camera, width: number, height: number): boolean {
  const at = layout.nodes.get(name);
  if (at === undefined) return false;
  const [x, y] = [at.x * camera.zoom + camera.x, at.y * camera.zoom + camera.y];
  return x > -NODE_WIDTH && y > -NODE_HEIGHT && x < width && y < height;
}

/** The node at a point of the frame. */
export function nodeAt(layout: Layout, camera: Camera, px: number, py: number): string | null {
  const [x, y] = [(px - camera.x) / camera.zoom, (py - camera.y) / camera.zoom];
  for (const node of layout.nodes.values())
    if (x >= node.x && x <= node.x + NODE_WIDTH && y >= node.y && y <= node.y + NODE_HEIGHT) return node.id;
  return null;
}

type Step = (camera: Camera) => Camera;

/** The camera, or null while nobody has moved it; and a function that moves it with the next frame. */
export function useCamera(start: Camera): [Camera, (step: Step | null) => void] {
  const [camera, setCamera] = useState<Camera | null>(null);
  const newest = useRef<Camera>(start);
  const frame = useRef(0);
  const home = useRef(start);
  home.current = start;
  if (camera === null) newest.current = start;
  useEffect(() => () => cancelAnimationFrame(frame.current), []);
  const move = useCallback((step: Step | null): void => {
    newest.current = step === null ? home.current : step(newest.current);
    cancelAnimationFrame(frame.current);
    frame.current = requestAnimationFrame(() => setCamera(newest.current));
  }, []);
  return [camera ?? start, move];
}
