// Why an instance is not as it should be: one cause and one next step, asked again when something changed.
import { useEffect, useState } from "react";
import { api } from "./api";
import { useSpeech } from "./i18n";
import type { Live } from "./live";
import { Age, Failure, useLoaded, type Place } from "./parts";

const SETTLE = 600;
const AGAIN = 10_000;

export function Why({ place, live }: { place: Place; live: Live }) {
  const { t, say } = useSpeech();
  const [turn, setTurn] = useState(0);
  const instance = live.instance;
  const state = JSON.stringify([instance?.uid, instance?.phase, instance?.conditions, live.events?.map((each) => each.last)]);
  useEffect(() => {
    const soon = window.setTimeout(() => setTurn((old) => old + 1), SETTLE);
    return () => clearTimeout(soon);
  }, [state]);
  const well = instance?.phase === "Running";
  useEffect(() => {
    if (well || document.visibilityState !== "visible") return undefined;
    const timer = window.setInterval(() => setTurn((old) => old + 1), AGAIN);
    return () => clearInterval(timer);
  }, [well, turn]);
  const { data, error, again } = useLoaded(() => api.diagnosis(place.namespace, place.entry, place.name), [turn, place.name]);
  const found = data?.diagnosis;
  if (error !== null && !well) return <Failure error={error} again={again} />;
  if (!found || (well && (found.code === "NotFound" || found.code === "NotReady"))) return null;
  return (
    <section className="notice why" data-testid="why" data-code={found.code} aria-labelledby="why-title">
      <h2 id="why-title">{t("why.title")}</h2>
      <p>
        <strong>{say(found.cause)}</strong>
        {found.since ? (
          <span className="quiet">
            {" "}
            {t("why.since")} <Age since={found.since} />
          </span>
        ) : null}
      </p>
      <p>
        {t("why.next")} {say(found.step)}
      </p>
      {found.raw ? (
        <details>
          <summary>{t("why.raw")}</summary>
          <p className="code">
            {found.kind} {found.name}: {found.raw}
          </p>
        </details>
      ) : null}
      {data && data.unseen.length > 0 ? <p className="quiet">{t("why.unseen", { kinds: data.unseen.join(", ") })}</p> : null}
    </section>
  );
}
