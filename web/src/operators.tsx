// Which operators work, what they manage, and what nobody manages.
import { useEffect, useState } from "react";
import { api, type Managed } from "./api";
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
      {data && data.unknown.length > 0 ? (
        <p className="quiet">{t("operators.unknown", { kinds: data.unknown.map(title).join(", ") })}</p>
      ) : null}
    </>
  );
}
