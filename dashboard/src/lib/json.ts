// JSON without the loss of digits: a number that JavaScript cannot hold is kept as it is written, and sent so again.

type Reviver = (this: unknown, key: string, value: unknown, context?: { source?: string }) => unknown;
interface Exact {
  parse(text: string, reviver: Reviver): unknown;
  rawJSON?: (text: string) => unknown;
}

const exact = JSON as unknown as Exact;
const LONG = /\d{16}|\d[eE]\+?\d{2}/; // shorter numbers are exact, and most texts have only these

/** A number as it is written. */
export class LongNumber {
  private readonly source: string;

  constructor(source: string) {
    this.source = source;
  }

  toJSON(): unknown {
    return exact.rawJSON?.(this.source);
  }

  toString(): string {
    return this.source;
  }
}

/** As JSON.parse. Browsers before 2025 may lack what it needs; there long numbers are rounded. */
export function parseJson(text: string): unknown {
  if (exact.rawJSON === undefined || !LONG.test(text)) return JSON.parse(text) as unknown;
  return exact.parse(text, (_key, value, context) =>
    typeof value === "number" && context?.source !== undefined && !isHeld(value, context.source) ? new LongNumber(context.source) : value,
  );
}

/** Whether the number means what is written. A fraction is one of 64 bits everywhere. */
function isHeld(value: number, source: string): boolean {
  if (!Number.isFinite(value)) return false;
  return Number.isSafeInteger(value) || !/^-?\d+$/.test(source);
}
