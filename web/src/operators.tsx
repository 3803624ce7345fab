// Which operators work, what they manage, and what nobody manages.
import { useEffect, useState } from "react";
import { api, type Managed, type Upgrade } from "./api";
import { useSpeech } from "./i18n";
import { Age, Failure, Head, Loading, useLoaded } from "./parts";
import { to } from "./route";

const AGAIN = 5000;

export function OperatorsPage() {
  const { t, say } = useSpeech();
  const [turn, setTurn] = useState(0);
  const { data, error, again } = useLoaded(api.operators, [turn]);
  const catalog = useLoaded(api.catalog, []);
  useEffect(() => {
    const timer = window.setInterval(() => {
      if (document.visibilityState === "visible") setTurn((old) => old + 1);
    }, AGAIN);
    return () => clearInterval(timer);
  }, []);
  const title = (entry: string) => say(catalog.data?.entries.find((card) => card.name === entry)?.display.title) || entry;
  const link = (each: Managed) => (
    <li key={`${each.namespace}/${each.entry}/${each.name}`}>
      <a href={to("instances", each.namespace, each.entry, each.name)}>
        {each.namespace}/{each.name}
      </a>{" "}
      <span className="quiet">{title(each.entry)}</span>
    </li>
  );
  return (
    <>
      <Head title={t("operators.title")} />
      <Failure error={error} again={again} />
      {data === null && error === null ? <Loading /> : null}
      {data && data.orphans.length > 0 ? (
        <section className="notice bad" data-testid="orphans">
          <h2>{t("operators.orphans")}</h2>
          <p>{t("operators.orphansHint")}</p>
          <ul>{data.orphans.map(link)}</ul>
        </section>
      ) : null}
      {data && data.contested.length > 0 ? (
        <section className="notice bad" data-testid="contested">
          <h2>{t("operators.contested")}</h2>
          <p>{t("operators.contestedHint")}</p>
          <ul>{data.contested.map(link)}</ul>
        </section>
      ) : null}
      {data && data.operators.length > 0 ? (
        <div className={error === null ? "scroll" : "scroll stale"} tabIndex={0} role="region" aria-label={t("operators.title")}>
          <table data-testid="operators">
            <thead>
              <tr>
                <th scope="col">{t("common.service")}</th>
                <th scope="col">{t("operators.scope")}</th>
                <th scope="col">{t("common.namespace")}</th>
                <th scope="col">{t("operators.health")}</th>
                <th scope="col">{t("nav.instances")}</th>
                <th scope="col">{t("operators.renewed")}</th>
              </tr>
            </thead>
            <tbody>
              {data.operators.map((each) => (
                <tr key={`${each.entry}/${each.namespace}/${each.lease}`}>
                  <th scope="row">{title(each.entry)}</th>
                  <td>{each.scope === "namespaced" ? t("operators.private") : t("operators.shared")}</td>
                  <td>{each.namespace || "–"}</td>
                  <td>
                    <span className={each.healthy ? "phase Running" : "phase Failed"}>
                      <span aria-hidden="true">{each.healthy ? "●" : "▲"}</span>{" "}
                      {each.healthy ? t("operators.healthy") : t("operators.gone")}
                    </span>
                  </td>
                  <td>{each.instances}</td>
                  <td>
                    <Age since={each.renewed} />
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      ) : null}
      {data && data.operators.length === 0 ? <p>{t("operators.none")}</p> : null}
      <Upgrades title={title} />
      {data && data.unknown.length > 0 ? (
        <p className="quiet">{t("operators.unknown", { kinds: data.unknown.map(title).join(", ") })}</p>
      ) : null}
    </>
  );
}

/** What this version of the operators would change, asked for by a click since it reads every instance. */
function Upgrades({ title }: { title: (entry: string) => string }) {
  const { t } = useSpeech();
  const [found, setFound] = useState<Upgrade | null>(null);
  const [error, setError] = useState<unknown>(null);
  const [busy, setBusy] = useState(false);
  const ask = () => {
    setBusy(true);
    api
      .upgrade()
      .then(
        (answer) => {
          setFound(answer);
          setError(null);
        },
        (problem: unknown) => setError(problem),
      )
      .finally(() => setBusy(false));
  };
  const rows = found?.rows.filter((row) => row.fields.length > 0 || row.trouble !== "") ?? [];
  const rolling = new Set(rows.filter((row) => row.fields.length > 0).map((row) => `${row.namespace}/${row.entry}/${row.name}`));
  return (
    <section aria-labelledby="upgrade-title">
      <h2 id="upgrade-title">{t("upgrade.title")}</h2>
      <p className="quiet">{t("upgrade.hint")}</p>
      <button onClick={ask} disabled={busy} aria-busy={busy} data-testid="ask-upgrade">
        {t("upgrade.ask")}
      </button>
      <Failure error={error} again={ask} />
      {found ? (
        <p role="status" data-testid="upgrade-count">
          {t("upgrade.count", { version: found.version, count: rolling.size, all: found.instances })}
          {found.truncated ? ` ${t("upgrade.truncated")}` : ""}
        </p>
      ) : null}
      {rows.length > 0 ? (
        <div className="scroll" tabIndex={0} role="region" aria-label={t("upgrade.title")}>
          <table data-testid="upgrades">
            <thead>
              <tr>
                <th scope="col">{t("common.name")}</th>
                <th scope="col">{t("common.service")}</th>
                <th scope="col">{t("upgrade.component")}</th>
                <th scope="col">{t("upgrade.when")}</th>
                <th scope="col">{t("upgrade.fields")}</th>
              </tr>
            </thead>
            <tbody>
              {rows.map((row) => (
                <tr key={`${row.namespace}/${row.entry}/${row.name}/${row.component}`}>
                  <th scope="row">
                    <a href={to("instances", row.namespace, row.entry, row.name)}>
                      {row.namespace}/{row.name}
                    </a>
                  </th>
                  <td>{title(row.entry)}</td>
                  <td>{row.component || "–"}</td>
                  <td>{row.trouble ? "–" : row.waiting ? t("upgrade.waiting") : t("upgrade.next")}</td>
                  <td>{row.trouble || row.fields.join("\n")}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      ) : null}
    </section>
  );
}
