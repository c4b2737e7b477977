// What JSX becomes in this dashboard (`jsxImportSource`): every text that an element shows passes `visible`. A name of a
// job, a tenant or a token can be shown in a hundred places, and no place can forget it. Values of inputs stay as they
// are: they are sent back.
import { Fragment, jsx as element, jsxs as elements } from "react/jsx-runtime";
import { visible } from "./visible";

export type { JSX } from "react/jsx-runtime";
export { Fragment };

type Type = Parameters<typeof element>[0];
type Props = Record<string, unknown>;

const SHOWN = ["title", "aria-label", "aria-description", "aria-valuetext", "alt", "placeholder"];

export function jsx(type: Type, props: unknown, key?: string): ReturnType<typeof element> {
  return element(type, shown(props as Props), key);
}

export function jsxs(type: Type, props: unknown, key?: string): ReturnType<typeof elements> {
  return elements(type, shown(props as Props), key);
}

export function shown(props: Props): Props {
  let changed: Props | null = null;
  for (const name of SHOWN) {
    const value = props[name];
    if (typeof value === "string" && visible(value) !== value) changed = { ...(changed ?? props), [name]: visible(value) };
  }
  const children = shownChildren(props["children"]);
  if (children !== props["children"]) changed = { ...(changed ?? props), children };
  return changed ?? props;
}

function shownChildren(children: unknown): unknown {
  if (typeof children === "string") return visible(children);
  if (!Array.isArray(children)) return children;
  const texts = children as unknown[];
  return texts.some((child) => typeof child === "string" && visible(child) !== child)
    ? texts.map((child) => (typeof child === "string" ? visible(child) : child))
    : children;
}
