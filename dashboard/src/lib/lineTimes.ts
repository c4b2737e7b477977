// The time that a line of output says by itself: at its beginning, or as a member of JSON.
const FIRST = /^\W{0,2}(\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?)\s?(Z|[+-]\d\d:?\d\d)?/;
const MEMBER = /^\s*\{.*"(?:time|timestamp|@timestamp|ts|asctime)"\s*:\s*(?:"([^"]{10,40})"|(\d{9,13}(?:\.\d+)?))/;

/** In milliseconds, or null. A time without a zone is taken as UTC. */
export function timeOfLine(text: string): number | null {
  const member = text.match(MEMBER);
  if (member?.[2] !== undefined) return Number(member[2]) * (member[2].length > 11 && !member[2].includes(".") ? 1 : 1000);
  const found = (member?.[1] ?? text).match(FIRST);
  if (found?.[1] === undefined) return null;
  const zone = found[2] === undefined ? "Z" : found[2].replace(/^([+-]\d\d)(\d\d)$/, "$1:$2");
  const at = Date.parse(`${found[1].replace(" ", "T").replace(",", ".")}${zone}`);
  return Number.isNaN(at) ? null : at;
}
