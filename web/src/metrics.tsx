// What is measured of an instance: charts of a Prometheus, else what its pods use now, and figures of its status.
import { useEffect, useRef, useState } from "react";
import { api, Problem, type ChartLine, type Metrics as Measured } from "./api";
import { amount, Chart } from "./chart";
import { useSpeech } from "./i18n";
import { Failure, Loading, useLoaded, type Place } from "./parts";

const RANGES = ["15m", "1h", "6h", "24h", "7d"];
const AGAIN = 15_000;
const KEPT = 240;

/** Where only the use of now is known, what was seen while the page is open makes a chart. */
function useHistory(data: Measured | null): { cpu: ChartLine[]; memory: ChartLine[] } {
  const kept = useRef(new Map<string, { cpu: [number, number][]; memory: [number, number][] }>());
  const seen = useRef<Measured | null>(null);
  if (data !== null && data !== seen.current) {
    seen.current = data;
    const now = Date.now() / 1000;
    for (const { pod, cpu, memory } of data.usage) {
      const lines = kept.current.get(pod) ?? { cpu: [], memory: [] };
      lines.cpu = [...lines.cpu, [now, cpu] as [number, number]].slice(-KEPT);
      lines.memory = [...lines.memory, [now, memory] as [number, number]].slice(-KEPT);
      kept.current.set(pod, lines);
    }
  }
  const lines = (of: "cpu" | "memory") => [...kept.current].map(([name, all]) => ({ name, points: all[of] }));
  return { cpu: lines("cpu"), memory: lines("memory") };
}

export function Metrics({ place }: { place: Place }) {
  const { t, say } = useSpeech();
  const [range, setRange] = useState("1h");
  const [turn, setTurn] = useState(0);
  const { data, error, again } = useLoaded(
    () => api.metrics(place.namespace, place.entry, place.name, range),
    [place.namespace, place.entry, place.name, range, turn],
  );
  useEffect(() => {
    const timer = window.setInterval(() => {
      if (document.visibilityState === "visible") setTurn((old) => old + 1);
    }, AGAIN);
    return () => clearInterval(timer);
  }, []);
  const history = useHistory(data);
  const away = error instanceof Problem && error.code === "PrometheusAway";
  return (
    <>
      {error !== null ? (
        away ? (
          <div className="notice bad" role="alert" data-testid="metrics-away">
            <p>{t("metrics.away")}</p>
            <p className="quiet">{error.message}</p>
            <button onClick={again}>{t("common.retry")}</button>
          </div>
        ) : (
          <Failure error={error} again={again} />
        )
      ) : null}
      {data === null && error === null ? <Loading /> : null}
      {data && data.figures.length > 0 ? (
        <dl className="figures" data-testid="figures">
          {data.figures.map((each) => (
            <div key={each.title.en} className="card">
              <dt>{say(each.title)}</dt>
              <dd>{typeof each.value === "number" ? amount(each.value, each.unit) : each.value}</dd>
            </div>
          ))}
        </dl>
      ) : null}
      {data?.source === "prometheus" ? (
        <>
          <label>
            {t("metrics.range")}{" "}
            <select value={range} onChange={(event) => setRange(event.target.value)} data-testid="range">
              {RANGES.map((each) => (
                <option key={each}>{each}</option>
              ))}
            </select>
          </label>
          <div className={error === null ? "charts" : "charts stale"} data-testid="charts">
            {data.charts.map((each) => (
              <Chart key={each.title.en} title={say(each.title)} unit={each.unit} lines={each.lines} empty={t("metrics.noData")} />
            ))}
          </div>
        </>
      ) : null}
      {data?.source === "metrics.k8s.io" ? (
        <>
          <p className="quiet">{t("metrics.now")}</p>
          {data.usage.length === 0 ? <p className="quiet">{t("metrics.noUsage")}</p> : null}
          {data.usage.length > 0 ? (
            <div className="charts" data-testid="usage">
              <Chart title={t("metrics.cpu")} unit="cores" lines={history.cpu} empty={t("metrics.noData")} />
              <Chart title={t("metrics.memory")} unit="bytes" lines={history.memory} empty={t("metrics.noData")} />
            </div>
          ) : null}
        </>
      ) : null}
      {data?.source === "denied" ? (
        <p className="notice" data-testid="metrics-denied">
          {t("metrics.denied", { namespace: place.namespace })}
        </p>
      ) : null}
      {data?.source === "none" ? (
        <div className="notice" data-testid="metrics-none">
          <p>{t("metrics.none")}</p>
          <p className="quiet">{t("metrics.configure")}</p>
          <pre tabIndex={0}>{"mooring console --prometheus URL\nhelm upgrade ... --set console.prometheus.url=URL"}</pre>
        </div>
      ) : null}
    </>
  );
}
