// Change an instance: the form and the editor, and beside them what the cluster would make of it.
import { useEffect, useMemo, useState, type FormEvent } from "react";
import { api, Problem, type Change, type Conflict, type EditForm, type FieldError, type Review, type Values } from "./api";
import { Fields } from "./form";
import { useSpeech } from "./i18n";
import { Failure, Head, Loading, Tabs, useLoaded, type Place } from "./parts";
import { go, to } from "./route";

const PAUSE = 350;

export function EditPage(place: Place) {
  const { namespace, entry, name } = place;
  const { data, error, again } = useLoaded(() => api.form(namespace, entry, name), [namespace, entry, name]);
  if (data === null) return error === null ? <Loading /> : <Failure error={error} again={again} />;
  return <Editor place={place} first={data} />;
}

function Editor({ place, first }: { place: Place; first: EditForm }) {
  const { t, say } = useSpeech();
  const [start, setStart] = useState<Pick<EditForm, "base" | "yaml" | "values" | "kept">>(first);
  const [typed, setTyped] = useState<Values>({});
  const [text, setText] = useState<string | null>(null);
  const [tab, setTab] = useState<"form" | "yaml">("form");
  const [review, setReview] = useState<Review | null>(null);
  const [checked, setChecked] = useState(false);
  const [errors, setErrors] = useState<FieldError[]>([]);
  const [failure, setFailure] = useState<unknown>(null);
  const [conflict, setConflict] = useState<Conflict | null>(null);
  const [turn, setTurn] = useState(0);
  const [round, setRound] = useState(0);
  const [busy, setBusy] = useState(false);
  const untouched = Object.keys(typed).length === 0 && text === null;
  const body = useMemo(() => ({ base: start.base, values: typed, yaml: text }), [start.base, typed, text]);

  // Nothing that was typed is touched by an answer, whatever it says.
  const refused = (problem: unknown) => {
    setChecked(false);
    setErrors([]);
    setConflict(null);
    setFailure(null);
    const known = problem instanceof Problem ? problem : null;
    if (known && Array.isArray(known.body["changes"]))
      setReview({ changes: known.body["changes"] as Change[], diff: "", warnings: [] });
    if (known && (known.code === "Changed" || known.code === "Replaced") && known.body["current"])
      setConflict(known.body as unknown as Conflict);
    else if (known && known.errors.length > 0) setErrors(known.errors);
    else setFailure(problem);
  };
  useEffect(() => {
    const stop = new AbortController();
    setChecked(false);
    if (untouched) {
      setReview(null);
      setErrors([]);
      setConflict(null);
      setFailure(null);
      return undefined;
    }
    const timer = setTimeout(() => {
      api.edit(place.namespace, place.entry, place.name, body, true, stop.signal).then(
        (found) => {
          setReview(found);
          setErrors([]);
          setFailure(null);
          setConflict(null);
          setChecked(found.changes.length > 0);
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
  }, [place.namespace, place.entry, place.name, body, untouched, turn]);

  const submit = (event: FormEvent) => {
    event.preventDefault();
    setBusy(true);
    api
      .edit(place.namespace, place.entry, place.name, body, false)
      .then(() => go("instances", place.namespace, place.entry, place.name), refused)
      .finally(() => setBusy(false));
  };
  const goOn = (found: Conflict) => {
    setStart(found.current);
    setRound(round + 1);
    if (text !== null) setText(found.merged);
    setConflict(null);
  };
  const properties = first.form.parameters?.properties ?? {};
  const told = useMemo(() => new Map(errors.map((each) => [each.field, say(each.message)])), [errors, say]);
  const values = useMemo(() => ({ ...start.values, ...typed }), [start.values, typed]);

  return (
    <>
      <Head title={t("edit.title", { name: place.name })}>
        <a href={to("instances", place.namespace, place.entry, place.name)}>{t("common.cancel")}</a>
      </Head>
      {first.curated ? null : <p className="notice">{t("create.uncurated")}</p>}
      <form className="sides" onSubmit={submit} noValidate>
        <div>
          <Tabs
            label={t("edit.how")}
            chosen={tab}
            choose={setTab}
            tabs={[
              ["form", t("edit.form")],
              ["yaml", t("instance.yaml")],
            ]}
          />
          {/* Both stay mounted: what is typed in one is kept while the other is looked at. */}
          <div hidden={tab !== "form"}>
            <Fields
              key={round}
              form={first.form}
              values={values}
              told={told}
              kept={start.kept}
              change={(field, value) => setTyped((old) => ({ ...old, [field]: value === undefined ? null : value }))}
            />
          </div>
          <div hidden={tab !== "yaml"} className="field">
            <label htmlFor="field-yaml">{t("edit.document")}</label>
            <textarea
              id="field-yaml"
              className="code"
              rows={28}
              spellCheck={false}
              autoComplete="off"
              value={text ?? start.yaml}
              aria-invalid={told.has("yaml")}
              aria-describedby="field-yaml-hint field-yaml-error"
              onChange={(event) => setText(event.target.value)}
            />
            <p id="field-yaml-hint" className="quiet">
              {t("edit.masked")}
            </p>
            <p id="field-yaml-error" className="error">
              {told.get("yaml") ?? ""}
            </p>
          </div>
        </div>
        <aside className="panel">
          <h2>{t("edit.review")}</h2>
          <div aria-live="polite">
            {untouched ? <p className="quiet">{t("edit.untouched")}</p> : null}
            {!untouched && review?.changes.length === 0 ? <p className="quiet">{t("edit.same")}</p> : null}
            {errors.length > 0 ? (
              <div className="notice bad" data-testid="errors">
                <p>{t("create.errors")}</p>
                <ul>
                  {errors.map((each, index) => (
                    <li key={index}>
                      {say(properties[each.field]?.title) || t("instance.yaml")}: {say(each.message)}
                    </li>
                  ))}
                </ul>
              </div>
            ) : null}
            {checked ? <p className="good">{t("create.checked")}</p> : null}
          </div>
          <Failure error={failure} again={() => setTurn((old) => old + 1)} />
          {conflict ? <Conflicting conflict={conflict} goOn={() => goOn(conflict)} text={text} /> : null}
          {review && review.changes.length > 0 && !conflict ? (
            <Changes changes={review.changes} caption={t("edit.changes")} id="changes" />
          ) : null}
          {review && review.warnings.length > 0 ? (
            <div className="notice">
              <p>{t("create.warnings")}</p>
              <ul>
                {review.warnings.map((warning) => (
                  <li key={warning}>{warning}</li>
                ))}
              </ul>
            </div>
          ) : null}
          <button className="primary" disabled={busy || !checked} data-testid="apply">
            {busy ? t("edit.applying") : t("edit.apply")}
          </button>
          {review && review.diff !== "" && !conflict ? (
            <>
              <h2>{t("edit.diff")}</h2>
              <Diff text={review.diff} stale={!checked} />
            </>
          ) : null}
        </aside>
      </form>
    </>
  );
}

function Diff({ text, stale }: { text: string; stale: boolean }) {
  const kind = (line: string) => (line.startsWith("+") ? "added" : line.startsWith("-") ? "removed" : "");
  return (
    <pre data-testid="diff" className={stale ? "stale" : ""} tabIndex={0}>
      {text.split("\n").map((line, index) => (
        <span key={index} className={kind(line)}>
          {`${line}\n`}
        </span>
      ))}
    </pre>
  );
}

export function Changes({ changes, caption, id }: { changes: Change[]; caption: string; id: string }) {
  const { t } = useSpeech();
  return (
    <div className="scroll" tabIndex={0} role="region" aria-label={caption}>
      <table data-testid={id}>
        <caption>{caption}</caption>
        <thead>
          <tr>
            <th scope="col">{t("edit.field")}</th>
            <th scope="col">{t("edit.old")}</th>
            <th scope="col">{t("edit.new")}</th>
          </tr>
        </thead>
        <tbody>
          {changes.map((each, index) => (
            <tr key={index}>
              <th scope="row">{each.path}</th>
              <td>{each.op === "add" ? "–" : each.old}</td>
              <td>
                {each.op === "remove" ? "–" : each.new} {each.secret ? t("edit.secret") : ""}
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function Conflicting({ conflict, goOn, text }: { conflict: Conflict; goOn: () => void; text: string | null }) {
  const { t } = useSpeech();
  const secret = conflict.ours.filter((each) => each.secret).map((each) => each.path);
  return (
    <div className="notice bad" role="alert" data-testid="conflict">
      <p>{t("edit.conflict")}</p>
      <Changes changes={conflict.theirs} caption={t("edit.theirs")} id="theirs" />
      <Changes changes={conflict.ours} caption={t("edit.ours")} id="ours" />
      {conflict.both.length > 0 ? <p>{t("edit.both", { fields: conflict.both.join(", ") })}</p> : null}
      {conflict.left.length > 0 ? (
        <p>{t("edit.left", { fields: conflict.left.map((each) => each.path).join(", ") })}</p>
      ) : null}
      {text !== null && secret.length > 0 ? <p>{t("edit.retype", { fields: secret.join(", ") })}</p> : null}
      <button type="button" onClick={goOn} data-testid="go-on">
        {t("edit.goOn")}
      </button>
    </div>
  );
}
