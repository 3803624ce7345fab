// The fields of an entry: the same to create and to edit.
import { useState } from "react";
import type { Entry, Parameter, Values } from "./api";
import { useSpeech } from "./i18n";

export function Field(props: {
  name: string;
  parameter: Parameter;
  value: unknown;
  needed: boolean;
  error: string;
  editing: boolean;
  kept: boolean;
  change: (value: unknown) => void;
}) {
  const { t, say } = useSpeech();
  const { name, parameter, value, change } = props;
  const widget = parameter["x-ui"]?.widget;
  const id = `field-${name}`;
  const fixed = props.editing && parameter["x-immutable"] === true;
  const told = { id, disabled: fixed, "aria-describedby": `${id}-hint ${id}-error`, "aria-invalid": props.error !== "" };
  const text = value === undefined || value === null ? "" : String(value);
  let input;
  if (parameter.type === "boolean")
    input = <input {...told} type="checkbox" checked={value === true} onChange={(e) => change(e.target.checked)} />;
  else if (parameter.enum && parameter.enum.length > 0)
    input = (
      <select
        {...told}
        value={text}
        onChange={(e) => change(parameter.enum?.find((choice) => String(choice) === e.target.value))}
      >
        {props.needed ? null : <option value="">–</option>}
        {parameter.enum.map((choice) => (
          <option key={String(choice)} value={String(choice)}>
            {String(choice)}
          </option>
        ))}
      </select>
    );
  else if (parameter.type === "object") input = <Pairs told={told} value={value} change={change} />;
  else if (parameter.type === "integer" || parameter.type === "number")
    input = (
      <input
        {...told}
        type="number"
        step={parameter.type === "integer" ? 1 : "any"}
        min={parameter.minimum}
        max={parameter.maximum}
        value={text}
        onChange={(e) => change(e.target.value === "" ? undefined : Number(e.target.value))}
      />
    );
  else
    input = (
      <input
        {...told}
        type={widget === "secret" ? "password" : "text"}
        autoComplete={widget === "secret" ? "new-password" : "off"}
        spellCheck={false}
        value={text}
        onChange={(e) => change(e.target.value)}
      />
    );
  return (
    <div className="field">
      <label htmlFor={id}>
        {say(parameter.title)}
        {props.needed ? <span className="quiet"> ({t("create.needed")})</span> : null}
      </label>
      {input}
      <p id={`${id}-hint`} className="quiet">
        {say(parameter.description)} {fixed ? t("edit.fixed") : ""} {props.kept ? t("edit.kept") : ""}
      </p>
      <p id={`${id}-error`} className="error">
        {props.error}
      </p>
    </div>
  );
}

function Pairs(props: { told: Record<string, unknown>; value: unknown; change: (value: unknown) => void }) {
  const { t } = useSpeech();
  const [text, setText] = useState(() =>
    Object.entries((props.value ?? {}) as Record<string, string>)
      .map(([name, value]) => `${name}=${value}`)
      .join("\n"),
  );
  return (
    <textarea
      {...props.told}
      rows={3}
      placeholder={t("create.pairs")}
      value={text}
      onChange={(event) => {
        setText(event.target.value);
        const pairs = event.target.value
          .split("\n")
          .filter((line) => line.trim() !== "")
          .map((line) => {
            const cut = line.indexOf("=");
            return cut < 0 ? [line.trim(), ""] : [line.slice(0, cut).trim(), line.slice(cut + 1)];
          });
        props.change(Object.fromEntries(pairs));
      }}
    />
  );
}

/** All fields in their sections; in an edit the immutable ones are locked, and `kept` ones hold a secret already. */
export function Fields(props: {
  form: Entry["form"];
  values: Values;
  told: Map<string, string>;
  change: (field: string, value: unknown) => void;
  kept?: string[];
}) {
  const { say } = useSpeech();
  const properties = props.form.parameters?.properties ?? {};
  const required = props.form.parameters?.required ?? [];
  return (
    <>
      {(props.form.sections ?? []).map((section) => (
        <details key={section.name} open={!section.advanced} className="section">
          <summary>{say(section.title)}</summary>
          {Object.entries(properties)
            .filter(([, parameter]) => (parameter["x-ui"]?.group ?? "") === section.name)
            .map(([field, parameter]) => (
              <Field
                key={field}
                name={field}
                parameter={parameter}
                value={props.values[field]}
                needed={required.includes(field)}
                error={props.told.get(field) ?? ""}
                editing={props.kept !== undefined}
                kept={props.kept?.includes(field) ?? false}
                change={(value) => props.change(field, value)}
              />
            ))}
        </details>
      ))}
    </>
  );
}
