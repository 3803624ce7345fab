// The log of a container: followed, in a ring of lines, so that a busy server costs no more than a quiet one.
import { useEffect, useRef, useState } from "react";
import { logs, Problem } from "./api";
import { useSpeech } from "./i18n";
import { Failure, Loading, type Place } from "./parts";
import { usePods } from "./pods";

const RING = 5000;
const PAINT = 200;
const CHOICES = [100, 200, 1000, 5000];

type State = "loading" | "open" | "ended";

export function Logs({ place }: { place: Place }) {
  const { t } = useSpeech();
  const { pods, error: unlisted, again: list } = usePods(place);
  const [chosen, setChosen] = useState("");
  const [count, setCount] = useState(200);
  const [follow, setFollow] = useState(true);
  const [previous, setPrevious] = useState(false);
  const [lines, setLines] = useState<string[]>([]);
  const [state, setState] = useState<State>("loading");
  const [error, setError] = useState<unknown>(null);
  const [turn, setTurn] = useState(0);
  const end = useRef<HTMLPreElement>(null);
  const choices = (pods ?? []).flatMap((pod) => pod.containers.map((container) => `${pod.name}/${container}`));
  const target = choices.includes(chosen) ? chosen : (choices[0] ?? "");

  useEffect(() => {
    if (target === "") return undefined;
    const stop = new AbortController();
    let ring: string[] = [];
    let changed = false;
    setLines([]);
    setError(null);
    setState("loading");
    const paint = window.setInterval(() => {
      if (changed) setLines([...ring]);
      changed = false;
    }, PAINT);
    const take = (fresh: string[]) => {
      ring = ring.concat(fresh);
      if (ring.length > RING) ring = ring.slice(-RING);
      changed = true;
    };
    const [pod = "", container = ""] = target.split("/");
    const query = { container, lines: String(count), follow: String(follow), previous: String(previous) };
    logs(place, pod, query, () => setState("open"), take, stop.signal).then(
      () => setState("ended"),
      (problem: unknown) => {
        if (stop.signal.aborted) return;
        setState("ended");
        setError(problem);
      },
    );
    return () => {
      stop.abort();
      clearInterval(paint);
    };
  }, [place.namespace, place.entry, place.name, target, count, follow, previous, turn]);
  useEffect(() => {
    const shown = end.current;
    if (follow && shown) shown.scrollTop = shown.scrollHeight;
  }, [lines, follow]);

  if (unlisted !== null) return <Failure error={unlisted} again={list} />;
  if (pods === undefined) return <Loading />;
  if (pods === null) return <p className="notice">{t("pods.denied")}</p>;
  if (choices.length === 0) return <p className="quiet">{t("pods.none")}</p>;
  const denied = error instanceof Problem && error.status === 403;
  return (
    <>
      <div className="head">
        <label>
          {t("logs.container")}{" "}
          <select value={target} onChange={(event) => setChosen(event.target.value)} data-testid="log-container">
            {choices.map((each) => (
              <option key={each}>{each}</option>
            ))}
          </select>
        </label>
        <label>
          {t("logs.lines")}{" "}
          <select value={count} onChange={(event) => setCount(Number(event.target.value))}>
            {CHOICES.map((each) => (
              <option key={each}>{each}</option>
            ))}
          </select>
        </label>
        <label>
          <input type="checkbox" checked={follow} onChange={(event) => setFollow(event.target.checked)} /> {t("logs.follow")}
        </label>
        <label>
          <input type="checkbox" checked={previous} onChange={(event) => setPrevious(event.target.checked)} />{" "}
          {t("logs.previous")}
        </label>
      </div>
      {denied ? <p className="notice">{t("logs.denied")}</p> : <Failure error={error} again={() => setTurn(turn + 1)} />}
      {state === "ended" && follow && error === null ? (
        <p className="notice" role="status" data-testid="log-ended">
          {t("logs.ended")} <button onClick={() => setTurn(turn + 1)}>{t("common.retry")}</button>
        </p>
      ) : null}
      {state === "open" && lines.length === 0 ? <p className="quiet">{t("logs.empty")}</p> : null}
      <pre
        ref={end}
        className={state === "ended" && follow ? "log stale" : "log"}
        tabIndex={0}
        role="log"
        aria-label={target}
        aria-live="off"
        aria-busy={state === "loading"}
        data-testid="log"
      >
        {lines.join("\n")}
      </pre>
    </>
  );
}
