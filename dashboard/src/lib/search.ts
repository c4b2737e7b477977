// The part of an address after the question mark, as plain text values.
export type Search = Record<string, string>;

export function parseSearch(text: string): Search {
  return Object.fromEntries(new URLSearchParams(text));
}

export function stringifySearch(search: Record<string, unknown>): string {
  const params = new URLSearchParams();
  for (const [name, value] of Object.entries(search))
    if (value !== undefined && value !== null && value !== "") params.set(name, String(value));
  const text = params.toString().replaceAll("%2C", ",").replaceAll("%3A", ":");
  return text === "" ? "" : `?${text}`;
}

/** Keeps the parameters that a page knows, and by which column its list is sorted. */
export function only<Name extends string>(...names: Name[]) {
  return (search: Record<string, unknown>): Partial<Record<Name | "sort", string>> => {
    const found: Partial<Record<Name | "sort", string>> = {};
    for (const name of [...names, "sort"] as const) {
      const value = search[name];
      if (value !== undefined && value !== "") found[name] = String(value);
    }
    return found;
  };
}
