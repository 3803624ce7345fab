// A template tried before it is anywhere: its text on one side; what is wrong by line, its form and its manifest on the other.
import { useEffect, useRef, useState } from "react";
import { api, DRAFT, Problem, type Trial, type Values } from "./api";
import { Fields } from "./form";
import { useSpeech } from "./i18n";
import { Failure, Head, useLoaded } from "./parts";

const PAUSE = 400;
const BEGIN = `apiVersion: catalog.mooring.dev/v1alpha1
kind: ClusterServiceTemplate
metadata: {name: my-redis}
spec:
  display:
    title: {en: "My Redis", zh: "我的 Redis"}
    summary: {en: "One line about it.", zh: "一句话介绍。"}
  target: {group: redis.kun, version: v1beta1, kind: RedisCluster, plural: redisclusters}
  sections:
    - {name: basics, title: {en: "Basics", zh: "基本"}}
  parameters:
    required: [size]
    properties:
      size:
        type: integer
        title: {en: "Servers", zh: "节点数"}
        minimum: 1
        maximum: 9
        default: 3
        x-bind: /spec/size
        x-ui: {group: basics, widget: stepper}
  rules:
    - {cel: "int(params.size) % 2 == 1", field: size, message: {en: "Use an odd number.", zh: "请使用奇数。"}}
  render: {spec: {image: "redis:7.0"}}
`;

export function TemplatesPage() {
  const { t, say } = useSpeech();
  const catalog = useLoaded(api.catalog, []);
  const [text, setText] = useState(() => sessionStorage.getItem(DRAFT) ?? BEGIN);
  const [values, setValues] = useState<Values | null>(null);
  const [trial, setTrial] = useState<Trial | null>(null);
  const [error, setError] = useState<unknown>(null);
  const [fresh, setFresh] = useState(false);
  const editor = useRef<HTMLTextAreaElement>(null);
  useEffect(() => {
    const stop = new AbortController();
    setFresh(false);
    sessionStorage.setItem(DRAFT, text);
    let timer = 0;
    const attempt = () => {
      api.tryTemplate(text, values, stop.signal).then(
        (found) => {
          setTrial(found);
          setError(null);
          setFresh(true);
        },
        (problem: unknown) => {
          if (stop.signal.aborted) return;
          // The server tries one template at a time: the one before is not done yet.
          if (problem instanceof Problem && problem.code === "OneAtATime") timer = window.setTimeout(attempt, PAUSE);
          else setError(problem);
        },
      );
    };
    timer = window.setTimeout(attempt, PAUSE);
    return () => {
      clearTimeout(timer);
      stop.abort();
    };
  }, [text, values]);
  const leadTo = (line: number) => {
    const area = editor.current;
    if (!area) return;
    const lines = text.split("\n");
    const begin = lines.slice(0, line - 1).reduce((sum, each) => sum + each.length + 1, 0);
    area.focus();
    area.setSelectionRange(begin, begin + (lines[line - 1]?.length ?? 0));
  };
  const told = new Map(trial?.errors.map((each) => [each.field, say(each.message)]));
  return (
    <>
      <Head title={t("templates.title")} />
      {catalog.data && catalog.data.problems.length > 0 ? (
        <section className="notice bad" data-testid="template-problems">
          <h2>{t("templates.refused")}</h2>
          <ul>
            {catalog.data.problems.map((each) => (
              <li key={each}>{each}</li>
            ))}
          </ul>
        </section>
      ) : null}
      <p className="quiet">{t("templates.hint")}</p>
      <div className="sides">
        <div>
          <div className="field">
            <label htmlFor="field-template">{t("templates.text")}</label>
            <textarea
              id="field-template"
              ref={editor}
              className="code"
              rows={36}
              spellCheck={false}
              value={text}
              onChange={(event) => {
                setText(event.target.value);
                setValues(null);
              }}
              aria-describedby="template-told"
            />
          </div>
        </div>
        <aside className="panel">
          <div id="template-told" aria-live="polite" className={fresh ? "" : "quiet"}>
            {trial && trial.problems.length > 0 ? (
              <div className="notice bad" data-testid="template-lint">
                <p>{t("templates.wrong")}</p>
                <ul>
                  {trial.problems.map((each, index) => (
                    <li key={index}>
                      {each.line !== null ? (
                        <button type="button" className="plain" onClick={() => leadTo(each.line ?? 1)}>
                          {t("templates.line", { line: each.line })}
                        </button>
                      ) : null}{" "}
                      {each.path ? `${each.path}: ` : ""}
                      {each.message}
                    </li>
                  ))}
                </ul>
              </div>
            ) : null}
            {trial && fresh && trial.problems.length === 0 ? (
              <p className="good" data-testid="template-good">
                {trial.compared ? t("templates.good") : t("templates.notCompared")}
              </p>
            ) : null}
          </div>
          <Failure error={error} />
          {trial?.form ? (
            <>
              <h2>{t("templates.form")}</h2>
              <Fields
                form={trial.form}
                values={values ?? trial.defaults}
                told={told}
                change={(field, value) => setValues({ ...(values ?? trial.defaults), [field]: value })}
              />
              <h2>{t("create.manifest")}</h2>
              <pre tabIndex={0} className={fresh ? "" : "stale"} data-testid="template-manifest">
                {trial.yaml || t("create.noManifest")}
              </pre>
            </>
          ) : null}
        </aside>
      </div>
    </>
  );
}
