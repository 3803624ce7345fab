// Objects that belong to an instance, such as its backups: listed, made, deleted, and new instances made of them.
import { useEffect, useRef, useState } from "react";
import { api, Problem, type Collection, type FieldError, type RelatedRow, type Values } from "./api";
import { amount } from "./chart";
import { Fields } from "./form";
import { useSpeech, type Key } from "./i18n";
import { Age, Failure, Loading, useLoaded, type Place } from "./parts";
import { to } from "./route";

const AGAIN = 5000;
const PAUSE = 350;

export function Collections({ place }: { place: Place }) {
  const { t, say } = useSpeech();
  const [turn, setTurn] = useState(0);
  const { data, error, again } = useLoaded(
    () => api.collections(place.namespace, place.entry, place.name),
    [place.namespace, place.entry, place.name, turn],
  );
  const [making, setMaking] = useState<Collection | null>(null);
  const [removing, setRemoving] = useState<{ of: Collection; row: RelatedRow } | null>(null);
  useEffect(() => {
    const timer = window.setInterval(() => {
      if (document.visibilityState === "visible") setTurn((old) => old + 1);
    }, AGAIN);
    return () => clearInterval(timer);
  }, []);
  if (data === null) return error === null ? <Loading /> : <Failure error={error} again={again} />;
  return (
    <>
      <Failure error={error} again={again} />
      {data.collections.map((each) => (
        <section key={each.name} aria-labelledby={`collection-${each.name}`} data-testid={`collection-${each.name}`}>
          <div className="head">
            <h2 id={`collection-${each.name}`}>{say(each.title)}</h2>
            <span className="grow" />
            {each.create && each.state === "listed" ? (
              <button
                className="primary"
                disabled={each.mayCreate === "denied"}
                title={each.mayCreate === "denied" ? t("collection.createDenied", { kind: say(each.title) }) : ""}
                onClick={() => setMaking(each)}
                data-testid={`make-${each.name}`}
              >
                {say(each.create.title)}
              </button>
            ) : null}
          </div>
          <p className="quiet">{say(each.description)}</p>
          {each.state === "denied" ? <p className="notice">{t("collection.denied", { kind: say(each.title) })}</p> : null}
          {each.state === "unserved" ? <p className="notice">{t("collection.unserved")}</p> : null}
          {each.state === "listed" && each.rows.length === 0 ? <p>{t("collection.empty")}</p> : null}
          {each.truncated ? <p className="notice">{t("collection.truncated")}</p> : null}
          {each.rows.length > 0 ? (
            <Rows of={each} place={place} stale={error !== null} remove={(row) => setRemoving({ of: each, row })} />
          ) : null}
        </section>
      ))}
      {making ? (
        <MakeDialog
          place={place}
          of={making}
          close={() => {
            setMaking(null);
            again();
          }}
        />
      ) : null}
      {removing ? (
        <RemoveDialog
          place={place}
          of={removing.of}
          row={removing.row}
          close={() => {
            setRemoving(null);
            again();
          }}
        />
      ) : null}
    </>
  );
}

const SIGNS = { good: "●", bad: "▲", pending: "◔" };

function Rows(props: { of: Collection; place: Place; stale: boolean; remove: (row: RelatedRow) => void }) {
  const { t, say } = useSpeech();
  const { of, place } = props;
  return (
    <div className={props.stale ? "scroll stale" : "scroll"} tabIndex={0} role="region" aria-label={say(of.title)}>
      <table>
        <thead>
          <tr>
            <th scope="col">{t("common.name")}</th>
            {of.columns.map((column) => (
              <th key={column.path} scope="col">
                {say(column.title)}
              </th>
            ))}
            <th scope="col">{t("common.age")}</th>
            <th scope="col">{t("collection.actions")}</th>
          </tr>
        </thead>
        <tbody>
          {of.rows.map((row) => (
            <tr key={row.uid} data-testid={`related-${row.name}`}>
              <th scope="row">
                {row.outcome === "" ? null : (
                  <span className={`outcome ${row.outcome}`}>
                    <span aria-hidden="true">{SIGNS[row.outcome]}</span>
                    <span className="unseen">{t(`outcome.${row.outcome}` as Key)}</span>{" "}
                  </span>
                )}
                {of.entry ? <a href={to("instances", place.namespace, of.entry, row.name)}>{row.name}</a> : row.name}
              </th>
              {of.columns.map((column, index) => (
                <td key={column.path}>
                  <Cell kind={column.kind ?? "text"} text={row.cells[index] ?? ""} />
                </td>
              ))}
              <td>
                <Age since={row.created} />
              </td>
              <td>
                {of.restore && row.restorable ? (
                  <a
                    className="button"
                    title={say(of.restore.description)}
                    href={restoring({ ...place, collection: of.name, from: row.name, ask: of.restore.ask })}
                    data-testid={`restore-${row.name}`}
                  >
                    {say(of.restore.title)}
                  </a>
                ) : null}{" "}
                <button
                  className="danger"
                  disabled={of.mayDelete === "denied"}
                  title={of.mayDelete === "denied" ? t("instance.deleteDenied") : ""}
                  onClick={() => props.remove(row)}
                  aria-label={t("collection.delete", { name: row.name })}
                >
                  {t("instance.delete")}
                </button>
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

/** The address of the page that restores an object into a new instance. */
export function restoring(of: Place & { collection: string; from: string; ask: string[] }): string {
  const { namespace, name: instance, collection, from } = of;
  const query = new URLSearchParams({ namespace, instance, collection, from, ...(of.ask.length > 0 ? { ask: of.ask.join(",") } : {}) });
  return `${to("create", of.entry)}?${query}`;
}

function Cell({ kind, text }: { kind: "text" | "time" | "bytes" | "flag"; text: string }) {
  const { t } = useSpeech();
  if (text === "") return "–";
  if (kind === "time") return <Age since={text} />;
  if (kind === "bytes") return amount(Number(text), "bytes");
  if (kind === "flag") return text === "true" ? t("common.yes") : t("common.no");
  return text;
}

function useDialog() {
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    const shown = dialog.current;
    if (shown && !shown.open) shown.showModal();
  }, []);
  return dialog;
}

function MakeDialog({ place, of, close }: { place: Place; of: Collection; close: () => void }) {
  const { t, say } = useSpeech();
  const dialog = useDialog();
  const [called, setCalled] = useState(
    () => `${place.name}-${new Date().toISOString().slice(0, 19).replace(/[-:]/g, "").replace("T", "-")}`.slice(-63).replace(/^-/, ""),
  );
  const [values, setValues] = useState<Values>(of.values);
  const [errors, setErrors] = useState<FieldError[]>([]);
  const [failure, setFailure] = useState<unknown>(null);
  const [yaml, setYaml] = useState("");
  const [checked, setChecked] = useState(false);
  const [busy, setBusy] = useState(false);
  const refused = (problem: unknown) => {
    setChecked(false);
    const told = problem instanceof Problem ? problem.errors.filter((each) => each.field !== "") : [];
    setErrors(told);
    setFailure(told.length > 0 ? null : problem);
  };
  useEffect(() => {
    const stop = new AbortController();
    setChecked(false);
    const timer = setTimeout(() => {
      api.add(place.namespace, place.entry, place.name, of.name, { name: called, values }, true, stop.signal).then(
        (found) => {
          setYaml(found.yaml);
          setErrors([]);
          setFailure(null);
          setChecked(true);
        },
        (problem: unknown) => {
          if (!stop.signal.aborted) refused(problem);
        },
      );
    }, PAUSE);
    return () => {
      clearTimeout(timer);
      stop.abort();
    };
  }, [called, values]);
  const submit = () => {
    setBusy(true);
    api
      .add(place.namespace, place.entry, place.name, of.name, { name: called, values }, false)
      .then(close, refused)
      .finally(() => setBusy(false));
  };
  const told = new Map(errors.map((each) => [each.field, say(each.message)]));
  const form = { sections: [{ name: "", title: of.create?.title ?? {} }], parameters: of.create?.parameters ?? {} };
  return (
    <dialog ref={dialog} onClose={close} aria-labelledby="make-title" data-testid="make-dialog">
      <form
        method="dialog"
        onSubmit={(event) => {
          event.preventDefault();
          submit();
        }}
      >
        <h2 id="make-title">
          {say(of.create?.title)}: {place.name}
        </h2>
        <p>{say(of.create?.description)}</p>
        <div className="field">
          <label htmlFor="field-related">{t("common.name")}</label>
          <input
            id="field-related"
            autoComplete="off"
            spellCheck={false}
            value={called}
            onChange={(event) => setCalled(event.target.value)}
            aria-invalid={told.has("name")}
            aria-describedby="field-related-error"
          />
          <p id="field-related-error" className="error">
            {told.get("name") ?? ""}
          </p>
        </div>
        <Fields form={form} values={values} told={told} change={(field, value) => setValues((old) => ({ ...old, [field]: value }))} />
        <Failure error={failure} />
        {yaml ? (
          <pre className={checked ? "" : "stale"} tabIndex={0} data-testid="make-manifest">
            {yaml}
          </pre>
        ) : null}
        <div className="tabs">
          <button type="button" onClick={close}>
            {t("common.cancel")}
          </button>
          <button className="primary" disabled={busy || !checked} data-testid="confirm-make">
            {say(of.create?.title)}
          </button>
        </div>
      </form>
    </dialog>
  );
}

function RemoveDialog({ place, of, row, close }: { place: Place; of: Collection; row: RelatedRow; close: () => void }) {
  const { t } = useSpeech();
  const dialog = useDialog();
  const [error, setError] = useState<unknown>(null);
  const [busy, setBusy] = useState(false);
  const remove = () => {
    setBusy(true);
    api
      .removeRelated(place.namespace, place.entry, place.name, of.name, row)
      .then(close, (problem: unknown) => setError(problem))
      .finally(() => setBusy(false));
  };
  return (
    <dialog ref={dialog} onClose={close} aria-labelledby="remove-title" data-testid="remove-dialog">
      <h2 id="remove-title">{t("collection.delete", { name: row.name })}</h2>
      <p>{t("collection.deleteHint")}</p>
      <Failure error={error} />
      <div className="tabs">
        <button type="button" onClick={close}>
          {t("common.cancel")}
        </button>
        <button className="danger" disabled={busy} onClick={remove} data-testid="confirm-remove">
          {t("instance.delete")}
        </button>
      </div>
    </dialog>
  );
}
