// What happens, as it happens. A tab that is not seen holds no connection: browsers allow six per site.
import { useEffect, useState } from "react";
import { api, lost, type Condition, type EventRow, type Row } from "./api";

export interface Live {
  /** null until the first snapshot. */
  rows: Row[] | null;
  truncated: boolean;
  denied: string[];
  connected: boolean;
  /** undefined without a focus or before the first snapshot, null when it is gone. */
  instance?: (Row & { conditions: Condition[] }) | null;
  /** null when the user may not see events. */
  events?: EventRow[] | null;
}

type Message = Partial<Omit<Live, "connected">> & { live?: boolean; gone?: [string, string, string][] };

const NOTHING: Live = { rows: null, truncated: false, denied: [], connected: false };
const id = (row: Row) => `${row.namespace}/${row.name}/${row.entry}`;

function changed(state: Live, message: Message): Live {
  const rows = new Map((state.rows ?? []).map((row) => [id(row), row]));
  for (const row of message.rows ?? []) rows.set(id(row), row);
  for (const [entry, namespace, name] of message.gone ?? []) rows.delete(`${namespace}/${name}/${entry}`);
  const sorted = [...rows.values()].sort((a, b) => (id(a) < id(b) ? -1 : 1));
  const next: Live = { ...state, rows: sorted, connected: message.live ?? true };
  if (message.instance !== undefined) next.instance = message.instance;
  if (message.events !== undefined) next.events = message.events;
  return next;
}

export function useLive(query: Record<string, string>): Live {
  const [state, setState] = useState<Live>(NOTHING);
  const search = new URLSearchParams(query).toString();
  useEffect(() => {
    setState(NOTHING);
    let source: EventSource | null = null;
    let timer = 0;
    let failures = 0;
    const close = () => {
      clearTimeout(timer);
      source?.close();
      source = null;
    };
    const again = () => {
      close();
      setState((old) => ({ ...old, connected: false }));
      failures += 1;
      const delay = Math.min(30_000, 1000 * 2 ** (failures - 1)) * (0.75 + Math.random() / 2);
      timer = window.setTimeout(open, delay);
      // An EventSource does not say why it failed; this does, if the session is over.
      api.session().catch(() => undefined);
    };
    const open = () => {
      close();
      source = new EventSource(`/api/v1/stream?${search}`);
      source.addEventListener("snapshot", (event) => {
        failures = 0;
        const { live, ...rest } = JSON.parse(event.data as string) as Message;
        setState({ ...NOTHING, ...rest, connected: live ?? true } as Live);
      });
      source.addEventListener("change", (event) => {
        const message = JSON.parse(event.data as string) as Message;
        setState((old) => changed(old, message));
      });
      source.addEventListener("end", (event) => {
        const { reason } = JSON.parse((event as MessageEvent<string>).data) as { reason: string };
        if (reason === "signed-out") {
          close();
          lost();
        } else again();
      });
      source.onerror = again;
    };
    const seen = () => (document.visibilityState === "visible" ? source ?? open() : close());
    document.addEventListener("visibilitychange", seen);
    seen();
    return () => {
      document.removeEventListener("visibilitychange", seen);
      close();
    };
  }, [search]);
  return state;
}
