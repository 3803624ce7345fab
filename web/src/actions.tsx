// What can be done with an instance by one click: first what would happen, then the button.
import { useEffect, useRef, useState } from "react";
import { api, Problem, type Action, type Actions as Known, type Review } from "./api";
import { Changes } from "./edit";
import { Field } from "./form";
import { useSpeech, type Key } from "./i18n";
import { Failure, Loading, useLoaded, type Place } from "./parts";

const PAUSE = 350;

export function Actions(props: { place: Place; uid: string; state: string; allowed: boolean }) {
  const { t, say } = useSpeech();
  const { place, uid } = props;
  const { data, again } = useLoaded(
    () => api.actions(place.namespace, place.entry, place.name),
    [place.namespace, place.entry, place.name, uid, props.state],
  );
  const [chosen, setChosen] = useState<Action | null>(null);
  return (
    <>
      {data?.actions
        .filter((each) => each.possible)
        .map((each) => (
          <button
            key={each.name}
            disabled={!props.allowed}
            title={props.allowed ? "" : t("edit.denied")}
            onClick={() => setChosen(each)}
            data-testid={`action-${each.name}`}
          >
            {say(each.title)}
          </button>
        ))}
      {chosen && data ? (
        <ActionDialog
          place={place}
          uid={uid}
          action={chosen}
          known={data}
          close={() => {
            setChosen(null);
            again();
          }}
        />
      ) : null}
    </>
  );
}

function ActionDialog(props: { place: Place; uid: string; action: Action; known: Known; close: () => void }) {
  const { t, say } = useSpeech();
  const { place, uid, action, close } = props;
  const dialog = useRef<HTMLDialogElement>(null);
  const parameter = props.known.fields[action.field];
  const [value, setValue] = useState<unknown>(props.known.values[action.field]);
  const [review, setReview] = useState<Review | null>(null);
  const [error, setError] = useState<unknown>(null);
  const [busy, setBusy] = useState(false);
  useEffect(() => {
    const shown = dialog.current;
    if (shown && !shown.open) shown.showModal();
  }, []);
  useEffect(() => {
    const stop = new AbortController();
    setReview(null);
    const timer = setTimeout(() => {
      api.act(place.namespace, place.entry, place.name, action.name, { uid, value }, true, stop.signal).then(
        (found) => {
          setReview(found);
          setError(null);
        },
        (problem: unknown) => {
          if (!stop.signal.aborted) setError(problem);
        },
      );
    }, PAUSE);
    return () => {
      clearTimeout(timer);
      stop.abort();
    };
  }, [place.namespace, place.entry, place.name, action.name, uid, value]);
  const submit = () => {
    setBusy(true);
    api
      .act(place.namespace, place.entry, place.name, action.name, { uid, value }, false)
      .then(close, (problem: unknown) => setError(problem))
      .finally(() => setBusy(false));
  };
  const told = error instanceof Problem ? error.errors.find((each) => each.field === action.field) : undefined;
  return (
    <dialog ref={dialog} onClose={close} aria-labelledby="action-title" data-testid="action-dialog">
      <form
        method="dialog"
        onSubmit={(event) => {
          event.preventDefault();
          submit();
        }}
      >
        <h2 id="action-title">
          {say(action.title)}: {place.name}
        </h2>
        <p>{say(action.description)}</p>
        <p className="quiet">{t(`effect.${action.effect}` as Key)}</p>
        {parameter ? (
          <Field
            name={`action-${action.field}`}
            parameter={parameter}
            value={value}
            needed
            error={told ? say(told.message) : ""}
            editing={false}
            kept={false}
            change={setValue}
          />
        ) : null}
        {told === undefined ? <Failure error={error} /> : null}
        {review === null && error === null ? <Loading /> : null}
        {review && review.changes.length > 0 ? (
          <Changes changes={review.changes} caption={t("edit.diff")} id="action-changes" />
        ) : null}
        {review?.changes.length === 0 ? <p className="quiet">{t("edit.same")}</p> : null}
        {review?.warnings.map((warning) => (
          <p key={warning} className="notice">
            {warning}
          </p>
        ))}
        <div className="tabs">
          <button type="button" onClick={close}>
            {t("common.cancel")}
          </button>
          <button className="primary" disabled={busy || !review || review.changes.length === 0} data-testid="confirm-action">
            {say(action.title)}
          </button>
        </div>
      </form>
    </dialog>
  );
}
