// At which line of a JSON text a member stands, so that a problem is shown where it was typed.

/** The line (from 1) of each value by its path, such as steps[2].depends_on. */
export function linesOf(text: string): Map<string, number> {
  const found = new Map<string, number>();
  let at = 0;
  let line = 1;
  const blank = (): void => {
    for (; at < text.length && /\s/.test(text[at] ?? ""); at++) if (text[at] === "\n") line++;
  };
  const string = (): string => {
    const start = at++;
    while (at < text.length && text[at] !== '"') at += text[at] === "\\" ? 2 : 1;
    return JSON.parse(text.slice(start, ++at)) as string;
  };
  const value = (path: string): void => {
    blank();
    if (!found.has(path)) found.set(path, line);
    const open = text[at];
    if (open === "{" || open === "[") members(path, open === "{");
    else if (open === '"') string();
    else while (at < text.length && !/[\s,\]}]/.test(text[at] ?? "")) at++;
  };
  const members = (path: string, named: boolean): void => {
    at++;
    for (let index = 0; ; index++) {
      blank();
      if (at >= text.length || text[at] === "}" || text[at] === "]") break;
      let place = `${path}[${index}]`;
      if (named) {
        const name = string();
        place = path === "" ? name : `${path}.${name}`;
        found.set(place, line);
        blank();
        at++; // the colon
      }
      value(place);
      blank();
      if (text[at] === ",") at++;
    }
    at++;
  };
  value("");
  return found;
}

/** The line of a field, or of the nearest thing that has it. */
export function lineOf(text: string, field: string): number {
  let lines: Map<string, number>;
  try {
    lines = linesOf(text);
  } catch {
    return 1;
  }
  for (let path = field; path !== ""; path = path.replace(/(\.[^.[]+|\[\d+\]|^[^.[]+)$/, "")) {
    const line = lines.get(path);
    if (line !== undefined) return line;
  }
  return 1;
}

/** Where JSON.parse stopped. */
export function lineOfError(text: string, message: string): number {
  const line = /line (\d+)/.exec(message)?.[1];
  if (line !== undefined) return Number(line);
  const place = /position (\d+)/.exec(message)?.[1];
  return place === undefined ? text.split("\n").length : text.slice(0, Number(place)).split("\n").length;
}
