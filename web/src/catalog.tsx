import { api, type Card } from "./api";
import { useSpeech } from "./i18n";
import { Failure, Head, Loading, useLoaded } from "./parts";
import { to } from "./route";

export function CatalogPage() {
  const { t, say } = useSpeech();
  const { data, error, again } = useLoaded(api.catalog, []);
  const there = data?.entries.filter((card) => card.served) ?? [];
  const companions = there.filter((card) => card.companion);
  const absent = data?.entries.filter((card) => !card.served) ?? [];
  return (
    <>
      <Head title={t("catalog.title")} />
      <Failure error={error} again={again} />
      {data === null ? error === null ? <Loading /> : null : null}
      {data?.entries.length === 0 ? <p>{t("catalog.empty")}</p> : null}
      <Cards cards={there.filter((card) => !card.companion)} />
      {companions.length > 0 ? (
        <section aria-labelledby="companions" data-testid="companions">
          <h2 id="companions">{t("catalog.companions")}</h2>
          <Cards cards={companions} small />
        </section>
      ) : null}
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

/** A card per entry; small ones say less. */
function Cards({ cards, small = false }: { cards: Card[]; small?: boolean }) {
  const { t, say } = useSpeech();
  return (
    <ul className="cards">
      {cards.map((card) => (
        <li key={card.name} className="card">
          {small ? <h3>{say(card.display.title)}</h3> : <h2>{say(card.display.title)}</h2>}
          <p>{say(card.display.summary)}</p>
          {card.display.description && !small ? <p className="quiet">{say(card.display.description)}</p> : null}
          <a
            className={small ? "button" : "button primary"}
            href={to("create", card.name)}
            aria-label={`${t("catalog.create")}: ${say(card.display.title)}`}
            data-testid={`create-${card.name}`}
          >
            {t("catalog.create")}
          </a>
        </li>
      ))}
    </ul>
  );
}
