/** One word of a command, as a shell reads it. */
export function word(value: string): string {
  return /^[\w@%+:,./-]+$/.test(value) ? value : `'${value.replaceAll("'", "'\\''")}'`;
}
