// All instances. Of a long list only the rows in sight are in the page.
import { useDeferredValue, useEffect, useMemo, useRef, useState } from "react";
import { api, type Row } from "./api";
import { useSpeech, type Key } from "./i18n";
import { useLive } from "./live";
import { Age, Head, Live, Loading, Phase, PHASES, useLoaded } from "./parts";
import { to, useRoute } from "./route";

/** Pixels of a row until one is measured, and rows kept above and below those in sight. */
const HEIGHT = 42;
const AROUND = 12;
/** Services, what goes with them such as backups, or both. */
const SHOWN = ["services", "companions", "all"] as const;

/** Which rows are in sight, while the page scrolls. */
function useWindow(count: number) {
  const body = useRef<HTMLTableSectionElement>(null);
  const [range, setRange] = useState({ first: 0, last: 60, height: HEIGHT });
  useEffect(() => {
    let frame = 0;
    const look = () => {
      frame = 0;
      const shown = body.current;
      if (shown === null) return;
      const height = shown.querySelector("tr[data-row]")?.getBoundingClientRect().height || HEIGHT;
      const above = -shown.getBoundingClientRect().top;
      const first = Math.max(0, Math.floor(above / height) - AROUND);
      const last = Math.min(count, Math.ceil((above + window.innerHeight) / height) + AROUND);
      setRange((old) => (old.first === first && old.last === last && old.height === height ? old : { first, last, height }));
    };
    const soon = () => {
      frame ||= requestAnimationFrame(look);
    };
    look();
    window.addEventListener("scroll", soon, { passive: true });
    window.addEventListener("resize", soon);
    return () => {
      cancelAnimationFrame(frame);
      window.removeEventListener("scroll", soon);
      window.removeEventListener("resize", soon);
    };
  }, [count]);
  return { body, ...range };
}

export function InstancesPage({ namespace }: { namespace: string }) {
  const { t, say } = useSpeech();
  const { query } = useRoute();
  const live = useLive(namespace === "" ? {} : { namespace });
  const names = useLoaded(api.namespaces, []);
  const catalog = useLoaded(api.catalog, []);
  const titles = useMemo(
    () => new Map(catalog.data?.entries.map((card) => [card.name, say(card.display.title)])),
    [catalog.data, say],
  );
  const title = (entry: string) => titles.get(entry) || entry;
  const [typed, setTyped] = useState(() => query.get("q") ?? "");
  const phase = query.get("phase") ?? "";
  const show = SHOWN.find((each) => each === query.get("show")) ?? "services";
  // A filter is a part of the address, so that it can be sent to somebody.
  const where = (change: Record<string, string>) => {
    const next = Object.entries({ namespace, phase, show: query.get("show") ?? "", q: typed, ...change }).filter(([, value]) => value !== "");
    return to("instances") + (next.length > 0 ? `?${new URLSearchParams(next)}` : "");
  };
  const words = useDeferredValue(typed).toLowerCase().split(/\s+/).filter(Boolean);
  const rows = useMemo(
    () => live.rows?.filter((row) => show === "all" || (row.companion === true) === (show === "companions")) ?? null,
    [live.rows, show],
  );
  const companions = new Set(catalog.data?.entries.filter((card) => card.companion).map((card) => card.name));
  const denied = live.denied.filter((entry) => show === "all" || companions.has(entry) === (show === "companions"));
  const found = useMemo(
    () =>
      rows?.filter(
        (row) =>
          (phase === "" || row.phase === phase) &&
          words.every((word) => `${row.name} ${row.namespace} ${title(row.entry)} ${row.message}`.toLowerCase().includes(word)),
      ) ?? [],
    [rows, phase, words.join(" "), titles],
  );
  return (
    <>
      <Head title={t("instances.title")}>
        <label>
          {t("common.namespace")}{" "}
          <select value={namespace} onChange={(event) => (window.location.hash = where({ namespace: event.target.value }))}>
            <option value="">{t("common.allNamespaces")}</option>
            {[...new Set([...(names.data?.namespaces ?? []), ...(namespace ? [namespace] : [])])].map((each) => (
              <option key={each}>{each}</option>
            ))}
          </select>
        </label>
        <label>
          {t("common.phase")}{" "}
          <select
            value={phase}
            onChange={(event) => (window.location.hash = where({ phase: event.target.value }))}
            data-testid="by-phase"
          >
            <option value="">{t("instances.anyPhase")}</option>
            {[...PHASES].map((each) => (
              <option key={each} value={each}>
                {t(`phase.${each}` as Key)}
              </option>
            ))}
          </select>
        </label>
        <label>
          {t("instances.show")}{" "}
          <select
            value={show}
            onChange={(event) => (window.location.hash = where({ show: event.target.value }))}
            data-testid="by-show"
          >
            {SHOWN.map((each) => (
              <option key={each} value={each}>
                {t(`show.${each}` as Key)}
              </option>
            ))}
          </select>
        </label>
        <input
          type="search"
          aria-label={t("instances.find")}
          placeholder={t("instances.find")}
          value={typed}
          onChange={(event) => {
            setTyped(event.target.value);
            window.history.replaceState(null, "", where({ q: event.target.value }));
          }}
          data-testid="find"
        />
        <Live on={live.connected} />
      </Head>
      {live.problem !== undefined ? (
        <p className="notice bad" data-testid="unserved">{t("live.unserved", { problem: live.problem })}</p>
      ) : null}
      {denied.length > 0 ? (
        <p className="notice" data-testid="denied">{t("instances.denied", { kinds: denied.map(title).join(", ") })}</p>
      ) : null}
      {rows === null ? <Loading /> : null}
      {rows?.length === 0 ? (
        <p>
          {show === "companions" ? t("instances.noCompanions") : t("instances.empty")} <a href={to("catalog")}>{t("instances.toCatalog")}</a>
        </p>
      ) : null}
      {rows !== null && rows.length > 0 ? (
        <>
          <p className="quiet" role="status" data-testid="count">
            {found.length === rows.length
              ? t("instances.count", { count: rows.length })
              : t("instances.found", { count: found.length, all: rows.length })}
            {live.truncated ? ` ${t("instances.truncated", { count: rows.length })}` : ""}
          </p>
          {found.length > 0 ? <Rows rows={found} title={title} stale={!live.connected} /> : null}
        </>
      ) : null}
    </>
  );
}

function Rows({ rows, title, stale }: { rows: Row[]; title: (entry: string) => string; stale: boolean }) {
  const { t } = useSpeech();
  const { body, first, last, height } = useWindow(rows.length);
  const gap = (count: number) => (count > 0 ? <tr aria-hidden="true"><td colSpan={6} height={count * height} /></tr> : null);
  return (
    <div className={stale ? "scroll stale" : "scroll"} tabIndex={0} role="region" aria-label={t("instances.title")}>
      <table className="rows" aria-rowcount={rows.length + 1}>
        <thead>
          <tr aria-rowindex={1}>
            <th scope="col">{t("common.name")}</th>
            <th scope="col">{t("common.namespace")}</th>
            <th scope="col">{t("common.service")}</th>
            <th scope="col">{t("common.phase")}</th>
            <th scope="col">{t("common.why")}</th>
            <th scope="col">{t("common.age")}</th>
          </tr>
        </thead>
        <tbody ref={body}>
          {gap(first)}
          {rows.slice(first, last).map((row, index) => (
            <tr
              key={`${row.namespace}/${row.name}/${row.entry}`}
              data-row={row.name}
              data-testid={`row-${row.name}`}
              aria-rowindex={first + index + 2}
            >
              <th scope="row" title={row.name}>
                <a href={to("instances", row.namespace, row.entry, row.name)}>{row.name}</a>
              </th>
              <td title={row.namespace}>{row.namespace}</td>
              <td title={title(row.entry)}>{title(row.entry)}</td>
              <td>
                <Phase phase={row.phase} />
              </td>
              <td title={row.message}>{row.message}</td>
              <td>
                <Age since={row.created} />
              </td>
            </tr>
          ))}
          {gap(rows.length - last)}
        </tbody>
      </table>
    </div>
  );
}
