// What happens, as it happens. A browser allows six connections per site, so all its tabs share one stream: the tab that
// holds the lock reads it, and tells the others. A tab that nobody sees asks for nothing.
import { useEffect, useState } from "react";
import { api, lost, Problem, renew, userKnown, type Condition, type EventRow, type Row } from "./api";

export interface Live {
  /** null until the first snapshot. */
  rows: Row[] | null;
  truncated: boolean;
  denied: string[];
  connected: boolean;
  /** Why this cannot be served, a code of the console. */
  problem?: string;
  /** undefined without a focus or before the first snapshot, null when it is gone. */
  instance?: (Row & { conditions: Condition[] }) | null;
  /** null when the user may not see events. */
  events?: EventRow[] | null;
}

type Message = Partial<Omit<Live, "connected">> & {
  topic?: number;
  live?: boolean;
  gone?: [string, string, string][];
};

/** What tabs tell each other. */
type Note =
  | { kind: "who" }
  | { kind: "want"; tab: string; topics: string[]; lacking: string[] }
  | { kind: "state"; tab: string; topic: string; state: Live }
  | { kind: "news"; topic: string; event: "snapshot" | "change"; message: Message }
  | { kind: "off" }
  | { kind: "out" };

const NOTHING: Live = { rows: null, truncated: false, denied: [], connected: false };
/** Milliseconds: until topics that change together are asked for, between two signs of life, until a tab counts as gone. */
const SETTLE = 20;
const ALIVE = 10_000;
const GONE = 30_000;
const id = (row: Row) => `${row.namespace}/${row.name}/${row.entry}`;

function changed(state: Live, message: Message): Live {
  let rows = state.rows ?? [];
  const fresh = new Map((message.rows ?? []).map((row) => [id(row), row]));
  const gone = new Set((message.gone ?? []).map(([entry, namespace, name]) => `${namespace}/${name}/${entry}`));
  if (fresh.size > 0 || gone.size > 0) {
    const kept: Row[] = [];
    for (const row of rows) {
      const key = id(row);
      const newer = fresh.get(key);
      if (newer !== undefined) {
        kept.push(newer);
        fresh.delete(key);
      } else if (!gone.has(key)) kept.push(row);
    }
    // Most changes are of rows that are there, and the order stays.
    rows = fresh.size === 0 ? kept : [...kept, ...fresh.values()].sort((a, b) => (id(a) < id(b) ? -1 : 1));
  }
  const next: Live = { ...state, rows, connected: message.live ?? true };
  if (message.instance !== undefined) next.instance = message.instance;
  if (message.events !== undefined) next.events = message.events;
  return next;
}

class Hub {
  private readonly tab = crypto.randomUUID();
  private readonly channel: BroadcastChannel;
  private readonly states = new Map<string, Live>();
  private readonly listeners = new Map<string, Set<() => void>>();
  /** The topics of other tabs, and when they last said so; of use to the leader alone. */
  private readonly others = new Map<string, { topics: string[]; seen: number }>();
  private leading = false;
  private resign: (() => void) | null = null;
  private candidacy: AbortController | null = null;
  private looking: symbol | null = null;
  private source: EventSource | null = null;
  private reading: string[] = [];
  private failures = 0;
  private retry = 0;
  private settling = 0;
  private readonly pulse: number;

  constructor(readonly name: string) {
    this.channel = new BroadcastChannel(name);
    this.channel.onmessage = (event: MessageEvent<Note>) => this.hear(event.data);
    document.addEventListener("visibilitychange", this.seen);
    window.addEventListener("pagehide", this.hide);
    this.pulse = window.setInterval(() => this.announce(), ALIVE);
    // Who is signed in has only just been found out.
    if (document.visibilityState === "visible") this.stand();
  }

  close(): void {
    clearInterval(this.pulse);
    document.removeEventListener("visibilitychange", this.seen);
    window.removeEventListener("pagehide", this.hide);
    this.hide();
    this.channel.close();
  }

  /** Read again after a session has ended and another one of the same user has begun. */
  resume(): void {
    if (this.leading && this.source === null) this.open();
    else if (this.candidacy === null && document.visibilityState === "visible") this.stand();
    else this.announce();
  }

  follow(topic: string, listener: () => void): () => void {
    const all = this.listeners.get(topic) ?? new Set();
    this.listeners.set(topic, all.add(listener));
    this.settle();
    return () => {
      all.delete(listener);
      if (all.size === 0) {
        this.listeners.delete(topic);
        // A follower hears no more of it; what it knew would be old when it is asked for again.
        if (!this.leading) this.states.delete(topic);
      }
      this.settle();
    };
  }

  state(topic: string): Live {
    return this.states.get(topic) ?? NOTHING;
  }

  private readonly seen = () => (document.visibilityState === "visible" ? this.show() : this.hide());

  private show(): void {
    if (this.candidacy !== null) return;
    // Somebody else may have signed in while nobody saw this page; the answer says so.
    const look = (this.looking = Symbol("look"));
    const stand = () => {
      if (this.looking === look) this.stand();
    };
    // A console that is away for a moment is followed as soon as it is back; one that says no, after a sign-in.
    api.session().then(stand, (problem: unknown) => (problem instanceof Problem && problem.status === 401 ? undefined : stand()));
  }

  private stand(): void {
    if (this.candidacy !== null) return;
    const candidacy = (this.candidacy = new AbortController());
    navigator.locks
      .request(this.name, { signal: candidacy.signal }, () => {
        if (candidacy.signal.aborted) return undefined;
        return new Promise<void>((resolve) => {
          this.resign = resolve;
          this.leading = true;
          this.tell({ kind: "who" });
          this.settle();
        });
      })
      .catch(() => undefined); // no candidate any more
    this.announce();
  }

  private readonly hide = () => {
    this.looking = null;
    this.candidacy?.abort();
    this.candidacy = null;
    this.leading = false;
    this.stop();
    this.others.clear();
    this.reading = [];
    this.resign?.();
    this.resign = null;
    this.tell({ kind: "want", tab: this.tab, topics: [], lacking: [] });
  };

  private tell(note: Note): void {
    this.channel.postMessage(note);
  }

  /** Topics of components that come and go together are asked for once. */
  private settle(): void {
    clearTimeout(this.settling);
    this.settling = window.setTimeout(() => (this.leading ? this.read() : this.announce()), SETTLE);
  }

  private announce(): void {
    if (this.leading) {
      const late = Date.now() - GONE;
      for (const [tab, { seen }] of this.others) if (seen < late) this.others.delete(tab);
      this.settle();
    } else if (this.candidacy !== null) {
      const topics = [...this.listeners.keys()];
      this.tell({ kind: "want", tab: this.tab, topics, lacking: topics.filter((topic) => this.state(topic).rows === null) });
    }
  }

  private hear(note: Note): void {
    if (note.kind === "who") this.announce();
    else if (note.kind === "want" && this.leading) {
      if (note.topics.length === 0) this.others.delete(note.tab);
      else this.others.set(note.tab, { topics: note.topics, seen: Date.now() });
      for (const topic of note.lacking) {
        const state = this.state(topic);
        if (state.rows !== null) this.tell({ kind: "state", tab: note.tab, topic, state });
      }
      this.settle();
    } else if (note.kind === "state" && note.tab === this.tab) this.keep(note.topic, note.state);
    else if (note.kind === "news") this.take(note.topic, note.event, note.message);
    else if (note.kind === "off") this.off();
    else if (note.kind === "out") lost();
  }

  private keep(topic: string, state: Live): void {
    this.states.set(topic, state);
    for (const listener of this.listeners.get(topic) ?? []) listener();
  }

  private take(topic: string, event: "snapshot" | "change", message: Message): void {
    if (!this.leading && !this.listeners.has(topic)) return;
    if (event === "snapshot") {
      const { live, topic: _, ...rest } = message;
      this.keep(topic, { ...NOTHING, ...rest, connected: live ?? true });
    } else if (this.state(topic).rows !== null) this.keep(topic, changed(this.state(topic), message));
  }

  private off(): void {
    for (const [topic, state] of this.states) this.keep(topic, { ...state, connected: false });
  }

  // --- the leader

  private stop(): void {
    clearTimeout(this.retry);
    this.source?.close();
    this.source = null;
  }

  private read(): void {
    const wanted = new Set(this.listeners.keys());
    for (const { topics } of this.others.values()) for (const topic of topics) wanted.add(topic);
    const topics = [...wanted].sort();
    if (topics.join("\n") === this.reading.join("\n")) return;
    this.reading = topics;
    for (const topic of this.states.keys()) if (!wanted.has(topic)) this.states.delete(topic);
    this.open();
  }

  private open(): void {
    this.stop();
    const topics = this.reading;
    if (topics.length === 0) return;
    const source = (this.source = new EventSource(`/api/v1/stream?${new URLSearchParams([["user", userKnown()], ...topics.map((topic) => ["topic", topic])])}`));
    for (const event of ["snapshot", "change"] as const)
      source.addEventListener(event, ({ data }) => {
        this.failures = 0;
        const message = JSON.parse(data as string) as Message;
        const topic = topics[message.topic ?? 0];
        if (topic === undefined) return;
        this.take(topic, event, message);
        if (this.others.size > 0) this.tell({ kind: "news", topic, event, message });
      });
    source.addEventListener("end", (event) => {
      const { reason } = JSON.parse((event as MessageEvent<string>).data) as { reason: string };
      this.again();
      if (reason !== "signed-out") return;
      clearTimeout(this.retry);
      // The stream has outlived its credential; the session may have another one by now.
      void renew().then((renewed) => {
        if (renewed) return this.open();
        this.tell({ kind: "out" });
        lost();
      });
    });
    source.onerror = () => this.again();
  }

  private again(): void {
    this.stop();
    this.off();
    this.tell({ kind: "off" });
    this.failures += 1;
    const delay = Math.min(30_000, 1000 * 2 ** (this.failures - 1)) * (0.75 + Math.random() / 2);
    this.retry = window.setTimeout(() => this.open(), delay);
    // An EventSource does not say why it failed; this does, if the session is over.
    api.session().catch(() => undefined);
  }
}

let hub: Hub | null = null;

/** Follow as this user; tabs of another user share nothing with this one. */
export function followAs(user: string): void {
  const name = `mooring-live ${user}`;
  if (hub?.name === name) return hub.resume();
  hub?.close();
  hub = new Hub(name);
}

export function useLive(query: Record<string, string>): Live {
  const topic = new URLSearchParams(query).toString() || "all";
  const [state, setState] = useState<Live>(NOTHING);
  useEffect(() => {
    const update = () => setState(hub?.state(topic) ?? NOTHING);
    update();
    return hub?.follow(topic, update);
  }, [topic]);
  return state;
}
