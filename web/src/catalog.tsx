import { api } from "./api";
import { useSpeech } from "./i18n";
import { Failure, Head, Loading, useLoaded } from "./parts";
import { to } from "./route";

export function CatalogPage() {
  const { t, say } = useSpeech();
  const { data, error, again } = useLoaded(api.catalog, []);
  const there = data?.entries.filter((card) => card.served) ?? [];
  const absent = data?.entries.filter((card) => !card.served) ?? [];
  return (
    <>
      <Head title={t("catalog.title")} />
      <Failure error={error} again={again} />
      {data === null ? error === null ? <Loading /> : null : null}
      {data?.entries.length === 0 ? <p>{t("catalog.empty")}</p> : null}
      <ul className="cards">
        {there.map((card) => (
          <li key={card.name} className="card">
            <h2>{say(card.display.title)}</h2>
            <p>{say(card.display.summary)}</p>
            {card.display.description ? <p className="quiet">{say(card.display.description)}</p> : null}
            <a className="button primary" href={to("create", card.name)} data-testid={`create-${card.name}`}>
              {t("catalog.create")}
            </a>
          </li>
        ))}
      </ul>
      {absent.length > 0 ? (
        <details data-testid="absent">
          <summary>
            {t("catalog.notServed")} ({absent.length})
          </summary>
          <ul>
            {absent.map((card) => (
              <li key={card.name}>
                {say(card.display.title)} <span className="quiet">{say(card.display.summary)}</span>
              </li>
            ))}
          </ul>
        </details>
      ) : null}
      {data && data.problems.length > 0 ? (
        <section className="notice bad" data-testid="template-problems">
          <p>{t("catalog.problems")}</p>
          <ul>
            {data.problems.map((problem) => (
              <li key={problem}>{problem}</li>
            ))}
          </ul>
        </section>
      ) : null}
      {data && data.others.length > 0 ? (
        <details>
          <summary>
            {t("catalog.others")} ({data.others.length})
          </summary>
          <p className="quiet">{t("catalog.othersHint")}</p>
          <ul>
            {data.others.map((name) => (
              <li key={name}>
                <a href={to("create", `crd-${name}`)}>{name}</a>
              </li>
            ))}
          </ul>
        </details>
      ) : null}
    </>
  );
}
