/** The longest part of a masked title that the errors themselves contain. */
export function stem(title: string): string {
  const parts = title.split(/[\u001b#*…'"]+|<url>|<path>|<id>/).map((part) => part.trim());
  return parts.reduce((best, part) => (part.length > best.length ? part : best), "").slice(0, 60);
}
