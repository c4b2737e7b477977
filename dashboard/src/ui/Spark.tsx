// Counts over time as bars the height of a line of text.
import styles from "./Spark.module.css";

const BARS = 48;

export function Spark({ values, label }: { values: number[]; label: string }) {
  const bars = folded(values);
  const most = Math.max(1, ...bars);
  return (
    <svg className={styles.spark} viewBox={`0 0 ${BARS * 2} 20`} preserveAspectRatio="none" role="img" aria-label={label}>
      {bars.map((value, index) =>
        value > 0 ? <rect key={index} x={index * 2} width={1.6} y={20 - Math.max(2, (value / most) * 20)} height={Math.max(2, (value / most) * 20)} /> : null,
      )}
    </svg>
  );
}

function folded(values: number[]): number[] {
  const size = Math.max(1, Math.ceil(values.length / BARS));
  const sums: number[] = [];
  for (let from = 0; from < values.length; from += size) sums.push(values.slice(from, from + size).reduce((sum, value) => sum + value, 0));
  return sums;
}
