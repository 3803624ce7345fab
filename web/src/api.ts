// Requests to the console's own server. The session is a cookie that this code cannot read.
import type { Text } from "./i18n";

export interface FieldError {
  field: string;
  path?: string;
  message: Text;
}

export class Problem extends Error {
  constructor(
    readonly status: number,
    readonly code: string,
    detail: string,
    readonly requestId: string,
    readonly errors: FieldError[],
    readonly body: Record<string, unknown>,
  ) {
    super(detail);
  }
}

export interface Session {
  user: string;
  csrf: string;
  own: boolean;
  /** Whether this console opens terminals. */
  terminal: boolean;
  /** Seconds of the credential, null for one that does not say. */
  remaining: number | null;
  renewable: boolean;
}

/** How one can sign in; `oidc` is where a sign-in by the provider begins. */
export interface Ways {
  tokens: boolean;
  oidc: string | null;
  proxy: boolean;
}

export interface Card {
  name: string;
  curated: boolean;
  /** No service but goes with one, such as a backup. */
  companion: boolean;
  served?: boolean;
  display: { title: Text; summary: Text; description?: Text; categories?: string[] };
  target: { group: string; version: string; kind: string; plural: string };
}

export interface Parameter {
  type: "string" | "integer" | "number" | "boolean" | "object";
  title: Text;
  description?: Text;
  default?: unknown;
  minimum?: number;
  maximum?: number;
  enum?: unknown[];
  "x-ui"?: { group?: string; widget?: string };
  "x-sensitive"?: boolean;
  "x-immutable"?: boolean;
}

export type Values = Record<string, unknown>;

export interface Plan {
  name: string;
  title: Text;
  summary?: Text;
  values?: Values;
  default?: boolean;
}

export interface Entry extends Card {
  defaults: Values;
  form: {
    sections?: { name: string; title: Text; advanced?: boolean }[];
    parameters?: { required?: string[]; properties?: Record<string, Parameter> };
    plans?: Plan[];
    collections?: { name: string; title: Text }[];
  };
}

export interface Row {
  entry: string;
  namespace: string;
  name: string;
  uid: string;
  created: string;
  generation: number;
  phase: string;
  reason: string;
  message: string;
  companion?: boolean;
}

export interface Condition {
  type: string;
  status: string;
  reason: string;
  message: string;
  lastTransitionTime: string;
}

export interface EventRow {
  uid: string;
  type: string;
  reason: string;
  message: string;
  count: number;
  last: string;
  from: string;
}

/** A service that can be made of an object. */
export interface Restores {
  title: Text;
  description: Text;
  ask: string[];
  entry: string;
  collection: string;
  instance: string;
}

export interface Detail {
  card: Card;
  yaml: string;
  restores: Restores[];
  retention: { stays?: Text[]; goes?: Text[] };
}

export type Decision = "allowed" | "denied" | "unknown";
export type Permissions = Record<"create" | "get" | "patch" | "delete" | "terminal", Decision>;

/** What an edit begins from; the document is as the server masked it. */
export interface Base {
  uid: string;
  document: unknown;
}

export interface Start {
  base: Base;
  yaml: string;
  values: Values;
  kept: string[];
}

export type EditForm = Card & Start & Pick<Entry, "form">;

export interface Change {
  op: "add" | "replace" | "remove";
  path: string;
  field: string;
  old: string;
  new: string;
  secret: boolean;
}

export interface Review {
  changes: Change[];
  diff: string;
  warnings: string[];
}

/** Somebody else changed the instance: both sides, and what the edit would make of what is there now. */
export interface Conflict {
  theirs: Change[];
  ours: Change[];
  both: string[];
  left: Change[];
  current: Start;
  merged: string;
}

export interface Preview {
  yaml: string;
  warnings: string[];
  /** What an instance needs, by resource of a quota. */
  requests: Record<string, number>;
  quota: {
    rows: { quota: string; resource: string; hard: number; used: number; wanted: number; over: boolean }[];
    limits: { range: string; field: string; bound: "max" | "min"; limit: string; value: string }[];
    denied: boolean;
  } | null;
}

export type Unit = "" | "bytes" | "cores" | "perSecond" | "seconds" | "percent";

export interface ChartLine {
  name: string;
  points: [number, number | null][];
}

export interface Metrics {
  source: "prometheus" | "metrics.k8s.io" | "denied" | "none";
  charts: { title: Text; unit: Unit; lines: ChartLine[] }[];
  usage: { pod: string; cpu: number; memory: number }[];
  figures: { title: Text; unit: Unit; value: string | number }[];
}

export interface RelatedRow {
  name: string;
  uid: string;
  created: string;
  cells: string[];
  outcome: "good" | "bad" | "pending" | "";
  restorable: boolean;
}

export interface Collection {
  name: string;
  title: Text;
  description: Text;
  columns: { title: Text; path: string; kind?: "text" | "time" | "bytes" | "flag" }[];
  create: { title: Text; description: Text; parameters?: NonNullable<Entry["form"]["parameters"]> } | null;
  mayCreate: Decision;
  mayDelete: Decision;
  /** What the form for a new object begins with. */
  values: Values;
  /** The entry whose pages show single objects, "" for none. */
  entry: string;
  restore: { title: Text; description: Text; ask: string[] } | null;
  state: "listed" | "denied" | "unserved";
  rows: RelatedRow[];
  truncated: boolean;
}

/** What a new instance is made of. */
export interface Origin {
  collection: string;
  name: string;
}

export interface Upgrade {
  version: string;
  rows: {
    entry: string;
    namespace: string;
    name: string;
    component: string;
    fields: string[];
    waiting: boolean;
    trouble: string;
  }[];
  instances: number;
  truncated: boolean;
}

export interface Trial {
  problems: { line: number | null; path: string; message: string }[];
  compared: boolean;
  form: Entry["form"] | null;
  defaults: Values;
  errors: FieldError[];
  yaml: string;
}

export interface Diagnosis {
  code: string;
  cause: Text;
  step: Text;
  kind?: string;
  name?: string;
  since?: string;
  raw?: string;
}

export interface Pod {
  name: string;
  part: string;
  role: string;
  state: string;
  node: string;
  ip: string;
  phase: string;
  why: string;
  ready: boolean;
  restarts: number;
  created: string;
  containers: string[];
}

export interface Pods {
  pods: Pod[] | null;
  roles: Record<string, Text>;
  parts: Record<string, Text>;
}

export interface Action {
  name: string;
  title: Text;
  description: Text;
  effect: "none" | "reload" | "rolling" | "interruption";
  field: string;
  possible: boolean;
}

export interface Actions {
  actions: Action[];
  fields: Record<string, Parameter>;
  values: Values;
}

export interface Managed {
  entry: string;
  namespace: string;
  name: string;
}

export interface Operators {
  operators: {
    entry: string;
    lease: string;
    scope: "all" | "cluster" | "namespaced";
    namespace: string;
    healthy: boolean;
    renewed: string;
    instances: number;
  }[];
  orphans: Managed[];
  contested: Managed[];
  unknown: string[];
}

export interface ActivityRow {
  source: "user" | "event" | "change";
  time: string;
  who: string;
  type: string;
  reason: string;
  message: string;
  count: number;
  entry: string;
  namespace: string;
  name: string;
}

export interface Activity {
  rows: ActivityRow[];
  truncated: boolean;
  denied: string[];
  eventsDenied: boolean;
}

let csrf = "";
let signedOut: () => void = () => undefined;

export function onSignedOut(listener: () => void): void {
  signedOut = listener;
}

export function lost(): void {
  signedOut();
}

/** Seconds before the end of a credential in which it is renewed. */
const EARLY = 60;
let renewable = false;
let renewal = 0;

/** What this tab keeps of what is typed, for its user alone. */
export const DRAFT = "mooring.template";
/** Whom this page has been made for, once it is known. */
let known: string | null = null;

export function userKnown(): string {
  return known ?? "";
}

/** Renew the credential of the session; one tab does, the others see that it was done. */
export function renew(): Promise<boolean> {
  if (!renewable) return Promise.resolve(false);
  return navigator.locks.request("mooring-renewal", async () => {
    try {
      const now = await send<Session>("GET", "session", undefined, undefined, false).catch(() => null);
      const long = now !== null && (now.remaining ?? Infinity) > EARLY;
      kept(long ? now : await send<Session>("POST", "session/refresh", undefined, undefined, false));
      return true;
    } catch (error) {
      // A provider that is away for a moment is asked again; one that says no has ended the session.
      renewable = error instanceof Problem && error.status !== 401;
      if (renewable) plan(EARLY / 4);
      return false;
    }
  });
}

let due = false;
document.addEventListener("visibilitychange", () => {
  if (document.hidden || !due) return;
  due = false;
  void renew();
});

function plan(seconds: number): void {
  due = false;
  clearTimeout(renewal);
  // A page that nobody sees does not keep its session alive: it renews once it is seen again.
  renewal = window.setTimeout(() => (document.hidden ? (due = true) : void renew()), Math.min(seconds, 86_400) * 1000);
}

async function send<T>(method: string, path: string, body?: unknown, signal?: AbortSignal, again = true): Promise<T> {
  const headers: Record<string, string> = { Accept: "application/json" };
  if (method !== "GET") headers["X-Mooring-Csrf"] = csrf || "sign-in";
  if (body !== undefined) headers["Content-Type"] = "application/json";
  let response: Response;
  try {
    response = await fetch(`/api/v1/${path}`, {
      method,
      headers,
      credentials: "same-origin",
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
      ...(signal === undefined ? {} : { signal }),
    });
  } catch (error) {
    if (error instanceof DOMException && error.name === "AbortError") throw error;
    throw new Problem(0, "NoAnswer", "The console does not answer.", "", [], {});
  }
  const answer = (await response.json().catch(() => ({}))) as Record<string, unknown>;
  if (response.status === 401 && again && (await renew())) return send<T>(method, path, body, signal, false);
  if (!response.ok) throw refusal(response, answer, again ? method : "POST");
  return answer as T;
}

function refusal(response: Response, answer: Record<string, unknown>, method: string): Problem {
  const text = (name: string) => (typeof answer[name] === "string" ? answer[name] : "");
  if (response.status === 401 && method !== "POST") signedOut();
  const errors = Array.isArray(answer["errors"]) ? (answer["errors"] as FieldError[]) : [];
  return new Problem(response.status, text("code"), text("detail") || response.statusText, text("requestId"), errors, answer);
}

/** Read the lines of a log as they come; `opened` is called at the answer's head. */
export async function logs(
  place: { namespace: string; entry: string; name: string },
  pod: string,
  query: Record<string, string>,
  opened: () => void,
  take: (lines: string[]) => void,
  signal: AbortSignal,
): Promise<void> {
  const path = `/api/v1/${at(place.namespace, place.entry, place.name)}/pods/${encodeURIComponent(pod)}/log`;
  const response = await fetch(`${path}?${new URLSearchParams(query)}`, { credentials: "same-origin", signal });
  if (!response.ok) {
    const answer = (await response.json().catch(() => ({}))) as Record<string, unknown>;
    throw refusal(response, answer, "GET");
  }
  opened();
  const reader = response.body?.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const piece = await reader?.read();
    if (!piece || piece.done) break;
    const lines = (rest + piece.value).split("\n");
    rest = lines.pop() ?? "";
    if (lines.length > 0) take(lines);
  }
  if (rest !== "") take([rest]);
}

/** A shell in a container. The word that other requests carry in a header is offered as a subprotocol. */
export function openTerminal(place: { namespace: string; entry: string; name: string }, pod: string, container: string): WebSocket {
  const path = `/api/v1/${at(place.namespace, place.entry, place.name)}/pods/${encodeURIComponent(pod)}/terminal`;
  return new WebSocket(`${path}?${new URLSearchParams({ container })}`, ["mooring.terminal", `csrf.${csrf}`]);
}

function kept(session: Session): Session {
  if (known !== null && session.user !== known) {
    // Somebody else has signed in with this browser: nothing of this page is theirs.
    sessionStorage.removeItem(DRAFT);
    window.location.reload();
  }
  known = session.user;
  csrf = session.csrf;
  renewable = session.renewable;
  clearTimeout(renewal);
  if (session.renewable && session.remaining !== null) plan(Math.max(session.remaining - EARLY / 2, session.remaining / 2));
  return session;
}

const at = (namespace: string, entry: string, name: string) =>
  `namespaces/${encodeURIComponent(namespace)}/instances/${encodeURIComponent(entry)}/${encodeURIComponent(name)}`;

export const api = {
  session: async () => kept(await send<Session>("GET", "session")),
  signIn: async (token: string) => kept(await send<Session>("POST", "session", { token })),
  ways: () => send<Ways>("GET", "signin"),
  signOut: async () => {
    sessionStorage.removeItem(DRAFT);
    await send<unknown>("DELETE", "session");
    known = null;
  },
  catalog: () => send<{ entries: Card[]; others: string[]; problems: string[] }>("GET", "catalog"),
  entry: (name: string) => send<Entry>("GET", `catalog/${encodeURIComponent(name)}`),
  instances: () => send<{ rows: Row[] }>("GET", "instances"),
  operators: () => send<Operators>("GET", "operators"),
  activity: (query: Record<string, string>) =>
    send<Activity>("GET", `activity?${new URLSearchParams(Object.entries(query).filter(([, value]) => value !== ""))}`),
  namespaces: () => send<{ namespaces: string[] }>("GET", "namespaces"),
  permissions: (entry: string, namespace: string) =>
    send<Permissions>("GET", `permissions?${new URLSearchParams({ entry, namespace })}`),
  upgrade: () => send<Upgrade>("GET", "operators/upgrade"),
  tryTemplate: (yaml: string, values: Values | null, signal?: AbortSignal) =>
    send<Trial>("POST", "templates/try", { yaml, values }, signal),
  metrics: (namespace: string, entry: string, name: string, range: string) =>
    send<Metrics>("GET", `${at(namespace, entry, name)}/metrics?${new URLSearchParams({ range })}`),
  collections: (namespace: string, entry: string, name: string) =>
    send<{ collections: Collection[] }>("GET", `${at(namespace, entry, name)}/collections`),
  add: (
    namespace: string,
    entry: string,
    name: string,
    collection: string,
    body: { name: string; values: Values },
    dryRun: boolean,
    signal?: AbortSignal,
  ) => send<{ yaml: string }>("POST", `${at(namespace, entry, name)}/collections/${collection}?dryRun=${dryRun}`, body, signal),
  removeRelated: (namespace: string, entry: string, name: string, collection: string, row: RelatedRow) =>
    send<unknown>(
      "DELETE",
      `${at(namespace, entry, name)}/collections/${collection}/${encodeURIComponent(row.name)}?${new URLSearchParams({ uid: row.uid })}`,
    ),
  create: (namespace: string, body: { entry: string; name: string; values: Values; from?: Origin }, dryRun: boolean, signal?: AbortSignal) =>
    send<Preview>("POST", `namespaces/${encodeURIComponent(namespace)}/instances?dryRun=${dryRun}`, body, signal),
  instance: (namespace: string, entry: string, name: string) => send<Detail>("GET", at(namespace, entry, name)),
  diagnosis: (namespace: string, entry: string, name: string) =>
    send<{ diagnosis: Diagnosis | null; unseen: string[] }>("GET", `${at(namespace, entry, name)}/diagnosis`),
  actions: (namespace: string, entry: string, name: string) => send<Actions>("GET", `${at(namespace, entry, name)}/actions`),
  act: (
    namespace: string,
    entry: string,
    name: string,
    action: string,
    body: { uid: string; value?: unknown },
    dryRun: boolean,
    signal?: AbortSignal,
  ) => send<Review>("POST", `${at(namespace, entry, name)}/actions/${action}?dryRun=${dryRun}`, body, signal),
  pods: (namespace: string, entry: string, name: string) => send<Pods>("GET", `${at(namespace, entry, name)}/pods`),
  form: (namespace: string, entry: string, name: string) => send<EditForm>("GET", `${at(namespace, entry, name)}/form`),
  edit: (
    namespace: string,
    entry: string,
    name: string,
    body: { base: Base; values: Values; yaml: string | null },
    dryRun: boolean,
    signal?: AbortSignal,
  ) => send<Review>("PATCH", `${at(namespace, entry, name)}?dryRun=${dryRun}`, body, signal),
  remove: (namespace: string, entry: string, name: string, uid: string) =>
    send<unknown>("DELETE", `${at(namespace, entry, name)}?${new URLSearchParams({ uid })}`),
};
