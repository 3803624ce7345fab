import { api } from "./api";
import { useSpeech } from "./i18n";
import { useLive } from "./live";
import { Age, Head, Live, Loading, Phase, useLoaded } from "./parts";
import { to } from "./route";

const SHOWN = 500;

export function InstancesPage({ namespace }: { namespace: string }) {
  const { t, say } = useSpeech();
  const live = useLive(namespace === "" ? {} : { namespace });
  const names = useLoaded(api.namespaces, []);
  const catalog = useLoaded(api.catalog, []);
  const title = (entry: string) => say(catalog.data?.entries.find((card) => card.name === entry)?.display.title) || entry;
  const rows = live.rows;
  const hidden = rows !== null && (live.truncated || rows.length > SHOWN);
  return (
    <>
      <Head title={t("instances.title")}>
        <label>
          {t("common.namespace")}{" "}
          <select
            value={namespace}
            onChange={(event) => {
              const chosen = event.target.value;
              window.location.hash = to("instances") + (chosen ? `?${new URLSearchParams({ namespace: chosen })}` : "");
            }}
          >
            <option value="">{t("common.allNamespaces")}</option>
            {[...new Set([...(names.data?.namespaces ?? []), ...(namespace ? [namespace] : [])])].map((each) => (
              <option key={each}>{each}</option>
            ))}
          </select>
        </label>
        <Live on={live.connected} />
      </Head>
      {live.denied.length > 0 ? (
        <p className="notice">{t("instances.denied", { kinds: live.denied.map(title).join(", ") })}</p>
      ) : null}
      {rows === null ? <Loading /> : null}
      {rows?.length === 0 ? (
        <p>
          {t("instances.empty")} <a href={to("catalog")}>{t("instances.toCatalog")}</a>
        </p>
      ) : null}
      {rows !== null && rows.length > 0 ? (
        <div className="scroll">
          <table>
            <thead>
              <tr>
                <th scope="col">{t("common.name")}</th>
                <th scope="col">{t("common.namespace")}</th>
                <th scope="col">{t("common.service")}</th>
                <th scope="col">{t("common.phase")}</th>
                <th scope="col">{t("common.why")}</th>
                <th scope="col">{t("common.age")}</th>
              </tr>
            </thead>
            <tbody>
              {rows.slice(0, SHOWN).map((row) => (
                <tr key={`${row.namespace}/${row.name}/${row.entry}`} data-testid={`row-${row.name}`}>
                  <th scope="row">
                    <a href={to("instances", row.namespace, row.entry, row.name)}>{row.name}</a>
                  </th>
                  <td>{row.namespace}</td>
                  <td>{title(row.entry)}</td>
                  <td>
                    <Phase phase={row.phase} />
                  </td>
                  <td>{row.message}</td>
                  <td>
                    <Age since={row.created} />
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      ) : null}
      {hidden ? <p className="quiet">{t("instances.truncated", { count: SHOWN })}</p> : null}
    </>
  );
}
