// Small pieces that pages share.
import { useCallback, useEffect, useState, type KeyboardEvent, type ReactNode } from "react";
import { Problem } from "./api";
import { useSpeech, type Key } from "./i18n";

/** What a request brought: data, or what went wrong, and a way to ask again. */
export function useLoaded<T>(load: () => Promise<T>, by: unknown[]): { data: T | null; error: unknown; again: () => void } {
  const [state, setState] = useState<{ data: T | null; error: unknown }>({ data: null, error: null });
  const [turn, setTurn] = useState(0);
  useEffect(() => {
    let wanted = true;
    setState((old) => ({ ...old, error: null }));
    load().then(
      (data) => wanted && setState({ data, error: null }),
      (error: unknown) => wanted && setState((old) => ({ ...old, error })),
    );
    return () => {
      wanted = false;
    };
  }, [...by, turn]);
  return { ...state, again: useCallback(() => setTurn((old) => old + 1), []) };
}

/** Codes that have a text in both languages; what the server says stands below, as it is. */
const KNOWN = new Set([
  "NoAnswer",
  "Forbidden",
  "NotFound",
  "Conflict",
  "Expired",
  "TooManyRequests",
  "SignedOut",
  "Unauthorized",
  "NotNow",
  "Replaced",
  "NotOwned",
  "TooManyStreams",
  "Defect",
]);

export function Failure({ error, again }: { error: unknown; again?: () => void }) {
  const { t } = useSpeech();
  if (error === null || error === undefined) return null;
  const problem = error instanceof Problem ? error : null;
  const known = problem !== null && KNOWN.has(problem.code);
  return (
    <div role="alert" className="notice bad">
      {known ? <p>{t(`problem.${problem.code}` as Key)}</p> : null}
      <p className={known ? "quiet" : ""}>{problem?.message ?? String(error)}</p>
      {problem?.requestId ? <p className="quiet">{t("common.request", { id: problem.requestId })}</p> : null}
      {again ? <button type="button" onClick={again}>{t("common.retry")}</button> : null}
    </div>
  );
}

export function Loading() {
  const { t } = useSpeech();
  return (
    <p className="quiet" aria-busy="true">
      {t("common.loading")}
    </p>
  );
}

const SIGNS: Record<string, string> = { Running: "●", Succeeded: "✓", Failed: "▲", Degraded: "▲", Deleting: "✕" };
export const PHASES = new Set(["Pending", "Provisioning", "Running", "Succeeded", "Updating", "Degraded", "Failed", "Deleting", "Unknown"]);

export function Phase({ phase }: { phase: string }) {
  const { t } = useSpeech();
  const known = PHASES.has(phase) ? phase : "Unknown";
  return (
    <span className={`phase ${known}`} data-testid="phase" data-phase={known}>
      <span aria-hidden="true">{SIGNS[known] ?? "◔"}</span> {t(`phase.${known}` as Key)}
    </span>
  );
}

/** How long ago, or in how long, kept current. */
export function Age({ since }: { since: string }) {
  const { t } = useSpeech();
  const [now, setNow] = useState(Date.now);
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now()), 5000);
    return () => clearInterval(timer);
  }, []);
  const began = Date.parse(since);
  if (Number.isNaN(began)) return <span>–</span>;
  // Clocks differ by a little: what is so near is now.
  const ahead = began - now > 5000;
  const seconds = Math.max(0, Math.round((ahead ? began - now : now - began) / 1000));
  const text =
    seconds < 120
      ? `${seconds}s`
      : seconds < 7200
        ? `${Math.floor(seconds / 60)}m`
        : seconds < 172800
          ? `${Math.floor(seconds / 3600)}h`
          : `${Math.floor(seconds / 86400)}d`;
  return <time dateTime={since}>{ahead ? t("common.in", { time: text }) : text}</time>;
}

export function Live({ on }: { on: boolean }) {
  const { t } = useSpeech();
  return (
    <span className={on ? "live" : "live off"} role="status">
      {on ? t("live.on") : t("live.off")}
    </span>
  );
}

export interface Place {
  namespace: string;
  entry: string;
  name: string;
}

/** Tabs by the keyboard's rules: arrows move among them, the page follows. */
export function Tabs<T extends string>(props: {
  label: string;
  chosen: T;
  choose: (tab: T) => void;
  tabs: [T, string][];
}) {
  const names = props.tabs.map(([name]) => name);
  const move = (event: KeyboardEvent<HTMLDivElement>) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (step === undefined) return;
    event.preventDefault();
    const next = names[(names.indexOf(props.chosen) + step + names.length) % names.length];
    if (next === undefined) return;
    props.choose(next);
    document.getElementById(`tab-${next}`)?.focus();
  };
  return (
    <div className="tabs" role="tablist" aria-label={props.label} onKeyDown={move}>
      {props.tabs.map(([name, text]) => (
        <button
          key={name}
          id={`tab-${name}`}
          type="button"
          role="tab"
          aria-selected={name === props.chosen}
          tabIndex={name === props.chosen ? 0 : -1}
          onClick={() => props.choose(name)}
        >
          {text}
        </button>
      ))}
    </div>
  );
}

export function Head({ title, children }: { title: string; children?: ReactNode }) {
  useEffect(() => {
    document.title = `${title} · Mooring`;
  }, [title]);
  return (
    <header className="head">
      <h1>{title}</h1>
      {children}
    </header>
  );
}
