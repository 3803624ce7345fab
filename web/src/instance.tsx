import { useEffect, useRef, useState } from "react";
import { Actions } from "./actions";
import { Collections, restoring } from "./backups";
import { api, type Detail } from "./api";
import { useSpeech } from "./i18n";
import { useLive, type Live as LiveState } from "./live";
import { Logs } from "./logs";
import { Metrics } from "./metrics";
import { Age, Failure, Head, Live, Loading, Phase, Tabs, useLoaded, type Place } from "./parts";
import { to, useRoute } from "./route";
import { Terminal } from "./terminal";
import { Timeline } from "./timeline";
import { Topology } from "./topology";
import { Why } from "./why";

const TABS = ["overview", "topology", "metrics", "backups", "events", "logs", "terminal", "yaml"] as const;
type Tab = (typeof TABS)[number];

export function InstancePage({ terminal, ...place }: Place & { terminal: boolean }) {
  const { t, say } = useSpeech();
  const { query } = useRoute();
  const asked = query.get("tab") as Tab | null;
  const entry = useLoaded(() => api.entry(place.entry), [place.entry]);
  const collections = entry.data?.form.collections ?? [];
  const tabs = TABS.filter(
    (each) => (each !== "terminal" || terminal) && (each !== "backups" || collections.length > 0 || asked === "backups"),
  );
  const tab: Tab = asked !== null && tabs.includes(asked) ? asked : "overview";
  const setTab = (next: Tab) => {
    window.location.hash = `${to("instances", place.namespace, place.entry, place.name)}?${new URLSearchParams({ tab: next })}`;
  };
  const [asking, setAsking] = useState(false);
  const live = useLive({ ...place });
  const detail = useLoaded(() => api.instance(place.namespace, place.entry, place.name), [tab, live.instance?.uid, live.instance?.phase]);
  const permissions = useLoaded(() => api.permissions(place.entry, place.namespace), [place.entry, place.namespace]);
  const instance = live.instance;
  const names: Record<Tab, string> = {
    overview: t("instance.overview"),
    topology: t("instance.topology"),
    metrics: t("instance.metrics"),
    backups: say(collections[0]?.title) || t("instance.collections"),
    events: t("instance.events"),
    logs: t("instance.logs"),
    terminal: t("instance.terminal"),
    yaml: t("instance.yaml"),
  };
  const mayEdit = permissions.data?.patch !== "denied";
  const mayDelete = permissions.data?.delete !== "denied";
  return (
    <>
      <Head title={place.name}>
        <span className="quiet">
          <a href={to("instances")}>{t("nav.instances")}</a> / {place.namespace}
        </span>
        {instance ? (
          <span aria-live="polite">
            <Phase phase={instance.phase} />
          </span>
        ) : null}
        <Live on={live.connected} />
        <span className="grow" />
        {instance && instance.phase !== "Deleting" ? (
          <Actions
            place={place}
            uid={instance.uid}
            state={JSON.stringify([instance.phase, instance.generation])}
            allowed={mayEdit}
          />
        ) : null}
        {(detail.data?.restores ?? []).map((each) => (
          <a
            key={each.entry}
            className="button"
            title={say(each.description)}
            href={restoring({ ...each, namespace: place.namespace, name: each.instance, from: place.name })}
            data-testid={`restore-${each.entry}`}
          >
            {say(each.title)}
          </a>
        ))}
        {instance && instance.phase !== "Deleting" ? (
          mayEdit ? (
            <a className="button" href={to("instances", place.namespace, place.entry, place.name, "edit")} data-testid="edit">
              {t("edit.open")}
            </a>
          ) : (
            <button disabled title={t("edit.denied")}>
              {t("edit.open")}
            </button>
          )
        ) : null}
        {instance && instance.phase !== "Deleting" ? (
          <button
            className="danger"
            disabled={!mayDelete}
            title={mayDelete ? "" : t("instance.deleteDenied")}
            onClick={() => setAsking(true)}
            data-testid="delete"
          >
            {t("instance.delete")}
          </button>
        ) : null}
      </Head>
      {live.problem !== undefined ? (
        <p className="notice bad" data-testid="unserved">{t("live.unserved", { problem: live.problem })}</p>
      ) : null}
      {live.denied.length > 0 ? (
        <p className="notice">{t("instances.denied", { kinds: live.denied.join(", ") })}</p>
      ) : null}
      {instance === null && live.denied.length === 0 ? (
        <p className="notice" data-testid="gone">
          {t("instance.gone")} <a href={to("instances")}>{t("nav.instances")}</a>
        </p>
      ) : null}
      {instance ? <Why key={instance.phase} place={place} live={live} /> : null}
      <Tabs
        label={t("instance.views")}
        chosen={tab}
        choose={setTab}
        tabs={tabs.map((each) => [each, names[each]])}
      />
      {tab === "yaml" ? (
        <Yaml detail={detail} />
      ) : tab === "topology" ? (
        <Topology place={place} />
      ) : tab === "metrics" ? (
        <Metrics place={place} />
      ) : tab === "backups" ? (
        <Collections place={place} />
      ) : tab === "logs" ? (
        <Logs place={place} />
      ) : tab === "terminal" ? (
        <Terminal place={place} allowed={permissions.data?.terminal} />
      ) : live.rows === null ? (
        <Loading />
      ) : tab === "events" ? (
        <>
          <p>
            <a href={`${to("activity")}?${new URLSearchParams({ ...place })}`}>{t("activity.open")}</a>
          </p>
          <Events live={live} />
        </>
      ) : (
        <>
          <Timeline live={live} />
          <h2>{t("instance.conditions")}</h2>
          {instance && instance.conditions.length > 0 ? (
            <div className="scroll" tabIndex={0} role="region" aria-label={t("instance.conditions")}>
              <table data-testid="conditions">
                <thead>
                  <tr>
                    <th scope="col">{t("condition.type")}</th>
                    <th scope="col">{t("condition.status")}</th>
                    <th scope="col">{t("common.why")}</th>
                    <th scope="col">{t("condition.message")}</th>
                    <th scope="col">{t("condition.since")}</th>
                  </tr>
                </thead>
                <tbody>
                  {instance.conditions.map((each, index) => (
                    <tr key={`${each.type}-${index}`}>
                      <th scope="row">{each.type}</th>
                      <td>{each.status}</td>
                      <td>{each.reason}</td>
                      <td>{each.message}</td>
                      <td>
                        <Age since={each.lastTransitionTime} />
                      </td>
                    </tr>
                  ))}
                </tbody>
              </table>
            </div>
          ) : (
            <p className="quiet">{t("instance.noConditions")}</p>
          )}
        </>
      )}
      {asking && instance ? (
        <DeleteDialog place={place} uid={instance.uid} detail={detail.data} close={() => setAsking(false)} />
      ) : null}
    </>
  );
}

function Events({ live }: { live: LiveState }) {
  const { t } = useSpeech();
  return live.events === null ? (
            <p className="notice">{t("instance.eventsDenied")}</p>
          ) : live.events && live.events.length > 0 ? (
            <div className={live.connected ? "scroll" : "scroll stale"} tabIndex={0} role="region" aria-label={t("instance.events")}>
              <table data-testid="events">
                <thead>
                  <tr>
                    <th scope="col">{t("event.last")}</th>
                    <th scope="col">{t("common.why")}</th>
                    <th scope="col">{t("condition.message")}</th>
                    <th scope="col">{t("event.count")}</th>
                  </tr>
                </thead>
                <tbody>
                  {live.events.map((each) => (
                    <tr key={each.uid} className={each.type === "Warning" ? "warning" : ""}>
                      <td>
                        <Age since={each.last} />
                      </td>
                      <th scope="row">{each.reason}</th>
                      <td>{each.message}</td>
                      <td>{each.count}</td>
                    </tr>
                  ))}
                </tbody>
              </table>
            </div>
          ) : (
            <p className="quiet">{t("instance.noEvents")}</p>
          );
}

function Yaml({ detail }: { detail: { data: Detail | null; error: unknown; again: () => void } }) {
  const { t } = useSpeech();
  return (
    <>
      <Failure error={detail.error} again={detail.again} />
      {detail.data ? (
        <>
          <p className="quiet">{t("instance.masked")}</p>
          <pre tabIndex={0} data-testid="yaml">
            {detail.data.yaml}
          </pre>
        </>
      ) : null}
    </>
  );
}

function DeleteDialog(props: { place: Place; uid: string; detail: Detail | null; close: () => void }) {
  const { t, say } = useSpeech();
  const { place, close } = props;
  const dialog = useRef<HTMLDialogElement>(null);
  const [typed, setTyped] = useState("");
  const [error, setError] = useState<unknown>(null);
  const [busy, setBusy] = useState(false);
  useEffect(() => {
    const shown = dialog.current;
    if (shown && !shown.open) shown.showModal();
  }, []);
  const remove = () => {
    setBusy(true);
    api
      .remove(place.namespace, place.entry, place.name, props.uid)
      .then(close, (problem: unknown) => setError(problem))
      .finally(() => setBusy(false));
  };
  const goes = props.detail?.retention.goes ?? [];
  const stays = props.detail?.retention.stays ?? [];
  return (
    <dialog ref={dialog} onClose={close} aria-labelledby="delete-title">
      <form
        method="dialog"
        onSubmit={(event) => {
          event.preventDefault();
          remove();
        }}
      >
        <h2 id="delete-title">{t("delete.title", { name: place.name })}</h2>
        {goes.length + stays.length === 0 ? <p className="notice">{t("delete.unknown")}</p> : null}
        {goes.length > 0 ? (
          <>
            <h3>{t("delete.goes")}</h3>
            <ul>
              {goes.map((text, index) => (
                <li key={index}>{say(text)}</li>
              ))}
            </ul>
          </>
        ) : null}
        {stays.length > 0 ? (
          <>
            <h3>{t("delete.stays")}</h3>
            <ul>
              {stays.map((text, index) => (
                <li key={index}>{say(text)}</li>
              ))}
            </ul>
          </>
        ) : null}
        <div className="field">
          <label htmlFor="confirm">{t("delete.confirm", { name: place.name })}</label>
          <input id="confirm" autoComplete="off" value={typed} onChange={(event) => setTyped(event.target.value)} />
        </div>
        <Failure error={error} />
        <div className="tabs">
          <button type="button" onClick={close}>
            {t("common.cancel")}
          </button>
          <button className="danger" disabled={busy || typed !== place.name} data-testid="confirm-delete">
            {t("delete.submit")}
          </button>
        </div>
      </form>
    </dialog>
  );
}
