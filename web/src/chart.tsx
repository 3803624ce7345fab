// A chart of lines over time, drawn as SVG. Lines differ by dashes as well as by colour, and their values stand below.
import type { ChartLine, Unit } from "./api";

const WIDTH = 520;
const HEIGHT = 160;
const LEFT = 64;
const BOTTOM = 22;

/** A number with its unit, as people write it. */
export function amount(value: number, unit: Unit): string {
  if (unit === "bytes") {
    const power = value > 0 ? Math.min(Math.floor(Math.log2(value) / 10), 5) : 0;
    return `${trimmed(value / 1024 ** power)} ${["B", "KiB", "MiB", "GiB", "TiB", "PiB"][power]}`;
  }
  if (unit === "cores" && value > 0 && value < 1) return `${trimmed(value * 1000)}m`;
  const text = trimmed(value);
  return unit === "perSecond" ? `${text}/s` : unit === "seconds" ? `${text} s` : unit === "percent" ? `${text} %` : text;
}

function trimmed(value: number): string {
  const digits = Math.abs(value) >= 100 ? 0 : Math.abs(value) >= 1 ? 1 : 3;
  return String(Number(value.toFixed(digits)));
}

export function Chart({ title, unit, lines, empty }: { title: string; unit: Unit; lines: ChartLine[]; empty: string }) {
  const known = lines.flatMap((line) => line.points).filter((point): point is [number, number] => point[1] !== null);
  if (known.length === 0)
    return (
      <figure className="card chart">
        <figcaption>{title}</figcaption>
        <p className="quiet">{empty}</p>
      </figure>
    );
  const from = Math.min(...known.map(([when]) => when));
  const till = Math.max(...known.map(([when]) => when), from + 1);
  const most = Math.max(...known.map(([, value]) => value), 0) || 1;
  const x = (when: number) => LEFT + ((when - from) / (till - from)) * (WIDTH - LEFT - 8);
  const y = (value: number) => 8 + (1 - Math.max(value, 0) / most) * (HEIGHT - BOTTOM - 8);
  const path = (line: ChartLine) =>
    line.points.reduce(
      ([text, gap], [when, value]): [string, boolean] =>
        value === null ? [text, true] : [`${text}${gap ? "M" : "L"}${x(when).toFixed(1)} ${y(value).toFixed(1)}`, false],
      ["", true] as [string, boolean],
    )[0];
  const clock = (when: number) =>
    new Date(when * 1000).toLocaleString([], till - from > 86_400 ? { month: "2-digit", day: "2-digit" } : { hour: "2-digit", minute: "2-digit" });
  const last = (line: ChartLine) => line.points.filter(([, value]) => value !== null).at(-1)?.[1] ?? null;
  return (
    <figure className="card chart">
      <figcaption>{title}</figcaption>
      <svg viewBox={`0 0 ${WIDTH} ${HEIGHT}`} role="img" aria-label={title}>
        {[0, 0.5, 1].map((part) => (
          <g key={part}>
            <line className="grid" x1={LEFT} x2={WIDTH - 8} y1={y(most * part)} y2={y(most * part)} />
            <text x={LEFT - 6} y={y(most * part) + 4} textAnchor="end">
              {amount(most * part, unit)}
            </text>
          </g>
        ))}
        <text x={LEFT} y={HEIGHT - 4}>
          {clock(from)}
        </text>
        <text x={WIDTH - 8} y={HEIGHT - 4} textAnchor="end">
          {clock(till)}
        </text>
        {lines.map((line, index) => (
          <path key={line.name} className={`line s${index % 6}`} d={path(line)} />
        ))}
      </svg>
      <ul className="legend">
        {lines.map((line, index) => {
          const value = last(line);
          return (
            <li key={line.name}>
              <svg viewBox="0 0 24 6" aria-hidden="true">
                <path className={`line s${index % 6}`} d="M0 3L24 3" />
              </svg>{" "}
              {line.name || title}: <strong>{value === null ? "–" : amount(value, unit)}</strong>
            </li>
          );
        })}
      </ul>
    </figure>
  );
}
