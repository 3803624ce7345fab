// What was done, by whom and when: Events of users and of operators, and what the objects say of themselves.
import { useDeferredValue, useEffect, useMemo, useState } from "react";
import { api, type ActivityRow } from "./api";
import { useSpeech, type Key } from "./i18n";
import { Age, Failure, Head, Loading, useLoaded } from "./parts";
import { to, useRoute } from "./route";

const AGAIN = 10_000;
const SOURCES = ["user", "event", "change"] as const;
/** Reasons that have a text; others are shown as their program gave them. */
const REASONS = new Set(["CreatedByUser", "ChangedByUser", "ActionByUser", "AddedByUser", "DeletedByUser", "Created", "Changed", "Deleting"]);

export function ActivityPage() {
  const { t, say } = useSpeech();
  const { query } = useRoute();
  const [namespace, entry, name, source] = ["namespace", "entry", "name", "source"].map((each) => query.get(each) ?? "") as [
    string,
    string,
    string,
    string,
  ];
  const [typed, setTyped] = useState(() => query.get("q") ?? "");
  const [turn, setTurn] = useState(0);
  const names = useLoaded(api.namespaces, []);
  const catalog = useLoaded(api.catalog, []);
  const { data, error, again } = useLoaded(() => api.activity({ namespace, entry, name }), [namespace, entry, name, turn]);
  useEffect(() => {
    const timer = window.setInterval(() => {
      if (document.visibilityState === "visible") setTurn((old) => old + 1);
    }, AGAIN);
    return () => clearInterval(timer);
  }, []);
  const cards = catalog.data?.entries.filter((card) => card.served) ?? [];
  const titles = new Map(cards.map((card) => [card.name, say(card.display.title)]));
  const title = (each: string) => titles.get(each) ?? each;
  // A filter is a part of the address, so that it can be sent to somebody.
  const where = (change: Record<string, string>) => {
    const next = Object.entries({ namespace, entry, name, source, q: typed, ...change }).filter(([, value]) => value !== "");
    return to("activity") + (next.length > 0 ? `?${new URLSearchParams(next)}` : "");
  };
  const choose = (change: Record<string, string>) => (window.location.hash = where(change));
  const words = useDeferredValue(typed).toLowerCase().split(/\s+/).filter(Boolean);
  const rows = useMemo(
    () =>
      data?.rows.filter(
        (row) =>
          (source === "" || row.source === source) &&
          words.every((word) => `${row.who} ${row.name} ${row.reason} ${row.message}`.toLowerCase().includes(word)),
      ) ?? [],
    [data, source, words.join(" ")],
  );
  return (
    <>
      <Head title={t("activity.title")}>
        <Choice label={t("common.namespace")} value={namespace} all={t("common.allNamespaces")} choose={(next) => choose({ namespace: next })} id="namespace">
          {[...new Set([...(names.data?.namespaces ?? []), ...(namespace ? [namespace] : [])])].map((each) => [each, each])}
        </Choice>
        <Choice label={t("common.service")} value={entry} all={t("activity.allServices")} choose={(next) => choose({ entry: next, name: "" })} id="entry">
          {[...new Set([...cards.map((card) => card.name), ...(entry ? [entry] : [])])].map((each) => [each, title(each)])}
        </Choice>
        <Choice label={t("activity.source")} value={source} all={t("activity.allSources")} choose={(next) => choose({ source: next })} id="source">
          {SOURCES.map((each) => [each, t(`source.${each}` as Key)])}
        </Choice>
        <input
          type="search"
          aria-label={t("activity.find")}
          placeholder={t("activity.find")}
          value={typed}
          onChange={(event) => {
            setTyped(event.target.value);
            window.history.replaceState(null, "", where({ q: event.target.value }));
          }}
          data-testid="find"
        />
      </Head>
      <p className="quiet">{t("activity.hint")}</p>
      {name !== "" ? (
        <p className="notice">
          {t("activity.ofOne", { name })} <a href={where({ name: "" })}>{t("activity.ofAll")}</a>
        </p>
      ) : null}
      <Failure error={error} again={again} />
      {data === null ? error === null ? <Loading /> : null : null}
      {data?.eventsDenied ? <p className="notice" data-testid="events-denied">{t("activity.eventsDenied")}</p> : null}
      {data && data.denied.length > 0 ? (
        <p className="notice" data-testid="denied">{t("instances.denied", { kinds: data.denied.map(title).join(", ") })}</p>
      ) : null}
      {data ? (
        <p className="quiet" role="status" data-testid="count">
          {rows.length === 0 ? t("activity.empty") : t("activity.count", { count: rows.length })} {data.truncated ? t("activity.truncated") : ""}
        </p>
      ) : null}
      {rows.length > 0 ? <Rows rows={rows} title={title} stale={error !== null} /> : null}
    </>
  );
}

function Choice(props: { label: string; value: string; all: string; choose: (value: string) => void; id: string; children: [string, string][] }) {
  return (
    <label>
      {props.label}{" "}
      <select value={props.value} onChange={(event) => props.choose(event.target.value)} data-testid={`by-${props.id}`}>
        <option value="">{props.all}</option>
        {props.children.map(([value, text]) => (
          <option key={value} value={value}>
            {text}
          </option>
        ))}
      </select>
    </label>
  );
}

const SIGNS = { user: "☺", event: "⚙", change: "✎" };

function Rows({ rows, title, stale }: { rows: ActivityRow[]; title: (entry: string) => string; stale: boolean }) {
  const { t } = useSpeech();
  return (
    <div className={stale ? "scroll stale" : "scroll"} tabIndex={0} role="region" aria-label={t("activity.title")}>
      <table data-testid="activity">
        <thead>
          <tr>
            <th scope="col">{t("activity.when")}</th>
            <th scope="col">{t("activity.who")}</th>
            <th scope="col">{t("activity.what")}</th>
            <th scope="col">{t("activity.where")}</th>
          </tr>
        </thead>
        <tbody>
          {rows.map((row, index) => (
            <tr key={`${row.time} ${row.entry} ${row.name} ${row.reason} ${index}`} className={row.type === "Warning" ? "warning" : ""} data-source={row.source}>
              <td title={row.time}>
                <Age since={row.time} />
              </td>
              <td>
                <span aria-hidden="true">{SIGNS[row.source]}</span> <span className="unseen">{t(`source.${row.source}` as Key)}: </span>
                {row.who || "–"}
              </td>
              <td>
                <strong>{REASONS.has(row.reason) ? t(`did.${row.reason}` as Key) : row.reason}</strong> {row.message}
                {row.count > 1 ? <span className="quiet"> ×{row.count}</span> : null}
              </td>
              <td>
                <a href={to("instances", row.namespace, row.entry, row.name)}>{row.name}</a>{" "}
                <span className="quiet">
                  {row.namespace} · {title(row.entry)}
                </span>
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
