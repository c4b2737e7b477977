// As jsx-runtime.ts, for `npm run dev`.
import { Fragment, jsxDEV as element } from "react/jsx-dev-runtime";
import { shown } from "./jsx-runtime";

export type { JSX } from "react/jsx-dev-runtime";
export { Fragment };

export function jsxDEV(type: unknown, props: unknown, ...rest: unknown[]): unknown {
  return (element as (...all: unknown[]) => unknown)(type, shown(props as Record<string, unknown>), ...rest);
}
