// One page to create anything: its fields come from the catalog, its manifest and its errors from the server.
import { useEffect, useMemo, useRef, useState, type FormEvent } from "react";
import { api, Problem, type Entry, type FieldError, type Origin, type Permissions, type Preview, type Values } from "./api";
import { Fields } from "./form";
import { useSpeech } from "./i18n";
import { Failure, Head, Loading, useLoaded } from "./parts";
import { Quota } from "./quota";
import { go, useRoute } from "./route";

const PAUSE = 350;
const NOTHING: Preview = { yaml: "", warnings: [], requests: {}, quota: null };
const LETTERS = "bcdfghjklmnpqrstvwxz2456789";

function suggested(entry: Entry): string {
  const random = crypto.getRandomValues(new Uint8Array(4));
  const tail = [...random].map((byte) => LETTERS[byte % LETTERS.length]).join("");
  const stem = entry.curated ? entry.name.split("-")[0] : entry.target.kind.toLowerCase();
  return `${stem}-${tail}`;
}

/** Where a new instance is restored from: an object of a collection of another one. */
interface Source {
  namespace: string;
  instance: string;
  from: Origin;
  /** Fields that the new instance must not share with the old one. */
  ask: string[];
}

function sourceOf(query: URLSearchParams): Source | null {
  const [namespace, instance, collection, name] = ["namespace", "instance", "collection", "from"].map((each) => query.get(each) ?? "");
  if (!namespace || !instance || !collection || !name) return null;
  return { namespace, instance, from: { collection, name }, ask: (query.get("ask") ?? "").split(",").filter(Boolean) };
}

export function CreatePage({ name }: { name: string }) {
  const { query } = useRoute();
  const source = sourceOf(query);
  const { data, error, again } = useLoaded(async () => {
    const [entry, old] = await Promise.all([
      api.entry(name),
      // The new one begins as the old one is, which may be gone by now.
      source ? api.form(source.namespace, name, source.instance).catch(() => null) : null,
    ]);
    const begun = { ...entry.defaults, ...(old?.values ?? {}) };
    source?.ask.forEach((field) => delete begun[field]);
    return { ...entry, defaults: begun };
  }, [name, query.toString()]);
  if (data === null) return error === null ? <Loading /> : <Failure error={error} again={again} />;
  return <CreateForm key={query.toString()} entry={data} source={source} />;
}

function CreateForm({ entry, source }: { entry: Entry; source: Source | null }) {
  const { t, say } = useSpeech();
  const namespaces = useLoaded(api.namespaces, []);
  const plans = entry.form.plans ?? [];
  const [plan, setPlan] = useState(() => (source ? "" : (plans.find((each) => each.default)?.name ?? "")));
  const [values, setValues] = useState<Values>(entry.defaults);
  const [called, setCalled] = useState(() => suggested(entry));
  const [namespace, setNamespace] = useState(source?.namespace ?? "default");
  const body = { entry: entry.name, name: called, values, ...(source ? { from: source.from } : {}) };
  const [permissions, setPermissions] = useState<Permissions | null>(null);
  const [preview, setPreview] = useState<Preview | null>(null);
  const [errors, setErrors] = useState<FieldError[]>([]);
  const [failure, setFailure] = useState<unknown>(null);
  const [checked, setChecked] = useState(false);
  const [busy, setBusy] = useState(false);
  const summary = useRef<HTMLDivElement>(null);

  useEffect(() => {
    const known = namespaces.data?.namespaces;
    if (!source && known && known.length > 0 && !known.includes("default")) setNamespace(known[0] ?? "default");
  }, [namespaces.data]);
  useEffect(() => {
    let wanted = true;
    setPermissions(null);
    if (namespace !== "")
      api.permissions(entry.name, namespace).then(
        (found) => wanted && setPermissions(found),
        () => undefined, // unknown: the server decides when it is tried
      );
    return () => {
      wanted = false;
    };
  }, [entry.name, namespace]);

  const refused = (problem: unknown) => {
    setChecked(false);
    if (problem instanceof Problem && problem.errors.length > 0) {
      setErrors(problem.errors);
      setFailure(null);
      const yaml = problem.body["yaml"];
      if (typeof yaml === "string") setPreview({ ...NOTHING, ...(problem.body as Partial<Preview>), yaml, warnings: [] });
    } else {
      setErrors([]);
      setFailure(problem);
    }
  };
  // The server renders and checks, as it will when the instance is created: what is shown is what is sent.
  useEffect(() => {
    const stop = new AbortController();
    setChecked(false);
    const timer = setTimeout(() => {
      api.create(namespace, body, true, stop.signal).then(
        (found) => {
          setPreview(found);
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
  }, [entry.name, called, namespace, values]);

  const properties = entry.form.parameters?.properties ?? {};
  const told = useMemo(() => new Map(errors.map((each) => [each.field, say(each.message)])), [errors, say]);
  const denied = permissions?.create === "denied";

  const submit = (event: FormEvent) => {
    event.preventDefault();
    setBusy(true);
    api
      .create(namespace, body, false)
      .then(
        () => go("instances", namespace, entry.name, called),
        (problem: unknown) => {
          refused(problem);
          summary.current?.focus();
        },
      )
      .finally(() => setBusy(false));
  };
  const chosen = plans.find((each) => each.name === plan);
  const label = (field: string) => (field === "name" ? t("common.name") : say(properties[field]?.title) || field);

  return (
    <>
      <Head title={t("create.title", { title: say(entry.display.title) })} />
      {source ? (
        <p className="notice" data-testid="restoring">
          {t("create.restoring", { name: source.from.name, instance: source.instance })}
        </p>
      ) : null}
      {entry.curated ? null : <p className="notice">{t("create.uncurated")}</p>}
      <form className="sides" onSubmit={submit} noValidate>
        <div>
          <div className="field">
            <label htmlFor="field-name">{t("common.name")}</label>
            <input
              id="field-name"
              autoComplete="off"
              spellCheck={false}
              value={called}
              onChange={(event) => setCalled(event.target.value)}
              aria-invalid={told.has("name")}
              aria-describedby="field-name-hint field-name-error"
            />
            <p id="field-name-hint" className="quiet">
              {t("create.nameHint")}
            </p>
            <p id="field-name-error" className="error">
              {told.get("name") ?? ""}
            </p>
          </div>
          <div className="field">
            <label htmlFor="field-namespace">{t("common.namespace")}</label>
            <input
              id="field-namespace"
              list="namespaces"
              autoComplete="off"
              value={namespace}
              disabled={source !== null}
              onChange={(event) => setNamespace(event.target.value)}
            />
            <datalist id="namespaces">
              {namespaces.data?.namespaces.map((each) => <option key={each} value={each} />)}
            </datalist>
          </div>
          {denied ? (
            <p role="alert" className="notice bad">
              {t("create.denied", { plural: `${entry.target.plural}.${entry.target.group}`, namespace })}
            </p>
          ) : null}
          {plans.length > 0 ? (
            <fieldset>
              <legend>{t("create.plan")}</legend>
              <div className="plans">
                {plans.map((each) => (
                  <label key={each.name} className={each.name === plan ? "plan chosen" : "plan"}>
                    <input
                      type="radio"
                      name="plan"
                      checked={each.name === plan}
                      onChange={() => {
                        setPlan(each.name);
                        setValues((old) => ({ ...old, ...each.values }));
                      }}
                    />
                    <strong>{say(each.title)}</strong>
                    <span className="quiet">{say(each.summary)}</span>
                  </label>
                ))}
              </div>
            </fieldset>
          ) : null}
          <Fields
            form={entry.form}
            values={values}
            told={told}
            change={(field, value) => {
              setValues((old) => ({ ...old, [field]: value }));
              if (chosen?.values && field in chosen.values) setPlan("");
            }}
          />
        </div>
        <aside className="panel">
          <h2>{t("create.summary")}</h2>
          <dl>
            <dt>{entry.target.kind}</dt>
            <dd>
              {namespace}/{called}
            </dd>
            {plans.length > 0 ? (
              <>
                <dt>{t("create.plan")}</dt>
                <dd>{chosen ? say(chosen.title) : t("create.custom")}</dd>
              </>
            ) : null}
          </dl>
          {preview ? <Quota preview={preview} label={label} /> : null}
          <div ref={summary} tabIndex={-1} aria-live="polite">
            {errors.length > 0 ? (
              <div className="notice bad" data-testid="errors">
                <p>{t("create.errors")}</p>
                <ul>
                  {errors.map((each, index) => (
                    <li key={index}>
                      {label(each.field) || each.path}: {say(each.message)}
                    </li>
                  ))}
                </ul>
              </div>
            ) : null}
            {checked ? <p className="good">{t("create.checked")}</p> : null}
          </div>
          <Failure error={failure} />
          {preview && preview.warnings.length > 0 ? (
            <div className="notice">
              <p>{t("create.warnings")}</p>
              <ul>
                {preview.warnings.map((warning) => (
                  <li key={warning}>{warning}</li>
                ))}
              </ul>
            </div>
          ) : null}
          <button className="primary" disabled={busy || denied} data-testid="submit">
            {busy ? t("create.creating") : t("create.submit")}
          </button>
          <h2>{t("create.manifest")}</h2>
          <pre data-testid="manifest" className={checked ? "" : "stale"} tabIndex={0}>
            {preview?.yaml ?? t("create.noManifest")}
          </pre>
        </aside>
      </form>
    </>
  );
}
