// A shell in a container: what is typed goes out by the line, what comes back is shown as lines of text.
import { useEffect, useMemo, useRef, useState, type FormEvent, type KeyboardEvent } from "react";
import { openTerminal, type Decision } from "./api";
import { useSpeech, type Key } from "./i18n";
import { Loading, Failure, type Place } from "./parts";
import { usePods } from "./pods";

const RING = 3000;
const PAINT = 50;
/** Codes of the close frame that have a text of their own. */
const ENDINGS = new Set([4000, 4001, 4002, 4003, 4403, 4404]);

/** What a plain terminal shows: carriage returns, backspaces and erasing count, colours and drawings are left out. */
export class Screen {
  private lines: string[] = [""];
  private column = 0;
  private rest = "";

  write(text: string): void {
    let input = this.rest + text;
    this.rest = "";
    // A sequence that has not come whole waits for its end.
    const cut = /\x1b(?:\[[0-9;?]*|\][^\x07\x1b]*)?$/.exec(input);
    if (cut) {
      this.rest = cut[0].slice(0, 200);
      input = input.slice(0, cut.index);
    }
    for (const piece of input.match(/\x1b\[[0-9;?]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b.|[\x00-\x1f\x7f]|[^\x00-\x1f\x7f]+/gs) ?? [])
      this.take(piece);
    if (this.lines.length > RING) this.lines = this.lines.slice(-RING);
  }

  private take(piece: string): void {
    const last = this.lines.length - 1;
    const line = this.lines[last] ?? "";
    if (piece === "\n") {
      this.lines.push("");
      this.column = 0;
    } else if (piece === "\r") this.column = 0;
    else if (piece === "\b") this.column = Math.max(0, this.column - 1);
    else if (piece === "\t") this.put(" ".repeat(8 - (this.column % 8)));
    else if (/^\x1b\[0?K$/.test(piece)) this.lines[last] = line.slice(0, this.column);
    else if (/^\x1b\[(2|3|)J$/.test(piece)) {
      this.lines = [""];
      this.column = 0;
    } else if (piece >= " " && piece !== "\x7f" && !piece.startsWith("\x1b")) this.put(piece);
  }

  private put(text: string): void {
    const last = this.lines.length - 1;
    const line = (this.lines[last] ?? "").padEnd(this.column);
    this.lines[last] = line.slice(0, this.column) + text + line.slice(this.column + text.length);
    this.column += text.length;
  }

  text(): string {
    return this.lines.join("\n");
  }
}

export function Terminal({ place, allowed }: { place: Place; allowed: Decision | undefined }) {
  const { t } = useSpeech();
  const { pods, error, again } = usePods(place);
  const [chosen, setChosen] = useState("");
  const [target, setTarget] = useState<{ to: string; turn: number } | null>(null);
  const choices = (pods ?? []).flatMap((pod) => pod.containers.map((container) => `${pod.name}/${container}`));
  const selected = choices.includes(chosen) ? chosen : (choices[0] ?? "");
  if (allowed === "denied")
    return (
      <p className="notice bad" role="alert" data-testid="terminal-denied">
        {t("terminal.denied", { namespace: place.namespace })}
      </p>
    );
  if (error !== null) return <Failure error={error} again={again} />;
  if (pods === undefined) return <Loading />;
  if (pods === null) return <p className="notice">{t("pods.denied")}</p>;
  if (choices.length === 0) return <p className="quiet">{t("pods.none")}</p>;
  return (
    <>
      <p className="quiet">{t("terminal.audit")}</p>
      <div className="head">
        <label>
          {t("logs.container")}{" "}
          <select value={selected} onChange={(event) => setChosen(event.target.value)} data-testid="terminal-container">
            {choices.map((each) => (
              <option key={each}>{each}</option>
            ))}
          </select>
        </label>
        <button
          className="primary"
          onClick={() => setTarget({ to: selected, turn: (target?.turn ?? 0) + 1 })}
          data-testid="terminal-open"
        >
          {t("terminal.open")}
        </button>
      </div>
      {target ? <Shell key={target.turn} place={place} target={target.to} /> : null}
    </>
  );
}

function Shell({ place, target }: { place: Place; target: string }) {
  const { t } = useSpeech();
  const screen = useMemo(() => new Screen(), []);
  const socket = useRef<WebSocket | null>(null);
  const output = useRef<HTMLPreElement>(null);
  const input = useRef<HTMLInputElement>(null);
  const [shown, setShown] = useState("");
  const [code, setCode] = useState<number | null>(null);
  const [open, setOpen] = useState(false);
  const [line, setLine] = useState("");
  const [history, setHistory] = useState<string[]>([]);
  const [back, setBack] = useState(0);
  useEffect(() => {
    const [pod = "", container = ""] = target.split("/");
    const made = (socket.current = openTerminal(place, pod, container));
    let changed = false;
    const paint = window.setInterval(() => {
      if (changed) setShown(screen.text());
      changed = false;
    }, PAINT);
    made.onopen = () => {
      setOpen(true);
      input.current?.focus();
    };
    made.onmessage = (event: MessageEvent<string>) => {
      screen.write(event.data);
      changed = true;
    };
    made.onclose = (event) => {
      setShown(screen.text());
      setOpen(false);
      setCode(event.code);
    };
    return () => {
      clearInterval(paint);
      made.onclose = null;
      made.close();
    };
  }, []);
  useEffect(() => {
    const pre = output.current;
    if (pre) pre.scrollTop = pre.scrollHeight;
  }, [shown]);
  const send = (text: string) => socket.current?.send(text);
  const submit = (event: FormEvent) => {
    event.preventDefault();
    if (!open) return;
    send(`${line}\r`);
    if (line.trim() !== "") setHistory([line, ...history].slice(0, 100));
    setLine("");
    setBack(0);
  };
  const keys = (event: KeyboardEvent<HTMLInputElement>) => {
    const step = { ArrowUp: 1, ArrowDown: -1 }[event.key];
    if (step !== undefined) {
      event.preventDefault();
      const next = Math.min(Math.max(back + step, 0), history.length);
      setBack(next);
      setLine(next === 0 ? "" : (history[next - 1] ?? ""));
    } else if (event.ctrlKey && event.key === "d" && line === "") {
      event.preventDefault();
      send("\x04");
    } else if (event.ctrlKey && event.key === "c" && window.getSelection()?.toString() === "") {
      event.preventDefault();
      send("\x03");
    }
  };
  return (
    <>
      <pre
        ref={output}
        className={open ? "log" : "log stale"}
        tabIndex={0}
        role="log"
        aria-label={target}
        aria-busy={!open && code === null}
        data-testid="terminal"
      >
        {shown}
      </pre>
      <form className="shell" onSubmit={submit}>
        <input
          ref={input}
          aria-label={t("terminal.line")}
          placeholder={t("terminal.line")}
          autoComplete="off"
          autoCapitalize="off"
          spellCheck={false}
          disabled={!open}
          value={line}
          onChange={(event) => setLine(event.target.value)}
          onKeyDown={keys}
          data-testid="terminal-line"
        />
        <button disabled={!open}>{t("terminal.send")}</button>
        <button type="button" disabled={!open} onClick={() => send("\x03")} data-testid="terminal-interrupt">
          Ctrl-C
        </button>
        <button type="button" disabled={!open} onClick={() => send("\x04")}>
          Ctrl-D
        </button>
      </form>
      {code !== null ? (
        <p className="notice" role="status" data-testid="terminal-ended">
          {t(`ending.${ENDINGS.has(code) ? code : "other"}` as Key, { namespace: place.namespace })}
        </p>
      ) : null}
    </>
  );
}
