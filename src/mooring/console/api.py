"""The console's API: JSON under ``/api/v1``, every answer made with the rights of the session's user."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Container, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import Any, Final
from urllib.parse import parse_qsl

import msgspec
import structlog
from aiohttp import web

from mooring.cache import Clock
from mooring.catalog import (
    TEMPLATES,
    CatalogError,
    Entry,
    basic_entry,
    check_name,
    check_values,
    defaults,
    mask,
    render,
    requests_of,
    values_of,
)
from mooring.console.access import Access
from mooring.console.actions import actions_of, perform
from mooring.console.activity import activity_of
from mooring.console.document import to_yaml
from mooring.console.edit import Edit, form
from mooring.console.metrics import RANGES, Queries, figures_of, usage_of
from mooring.console.openapi import document
from mooring.console.operators import Leases, operators
from mooring.console.playground import tried
from mooring.console.pods import forward, log_query, pod_rows, selected
from mooring.console.problems import Problem, problem_of, refusal, scrubbed
from mooring.console.quota import quota_of
from mooring.console.records import Records
from mooring.console.related import (
    belongs,
    collection_of,
    collections_of,
    manifest_of,
    origin_of,
    restored,
    restores_of,
)
from mooring.console.rows import event_row
from mooring.console.session import Session, Sessions, SignedOut
from mooring.console.signin import SignIn, user_of
from mooring.console.stream import EVENT_LIMIT, LONGEST, RECHECK, View, first, write
from mooring.console.templates import Templates, distinct
from mooring.console.terminal import Place, Terminals, may_open
from mooring.console.upstream import FIELD_MANAGER, Upstream
from mooring.console.watches import Watches
from mooring.diagnosis import cause, diagnose, gather, pods_of, step
from mooring.kube import ApiError, Client, Forbidden, Key, KubeError, NotFound, Unauthorized
from mooring.kube.errors import api_error
from mooring.kube.objects.coordination import Lease
from mooring.kube.objects.core import Event, Namespace, Pod

__all__ = ["SESSION", "Api", "Handler", "UpgradePlan", "Upgrades"]

log = structlog.get_logger("mooring.console")

SESSION: Final = web.RequestKey("session", Session)
#: Topics that one user follows in all streams, logs among them, and all users; sign-ins that failed, in so many seconds.
USER_TOPICS, ALL_TOPICS, FAILED_SIGN_INS, SIGN_IN_SECONDS = 100, 2000, 10, 10.0
#: Views in one stream, at most: a browser has one stream for all its tabs.
MOST_TOPICS: Final = 32
#: Definitions listed as not curated, at most.
MOST_DEFINITIONS: Final = 500
#: Bytes of a bearer token.
TOKEN_LIMIT: Final = 6000

_DEFINITIONS: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_DEFINITION = re.compile(r"[a-z0-9]([-a-z0-9.]{0,250}[a-z0-9])?")
_NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_OBJECT = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_WARNING = re.compile(r'299 \S+ "((?:[^"\\]|\\.)*)"')
STREAMED: Final = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
#: Instances whose upgrade is looked at, and so many at once.
MOST_UPGRADES, UPGRADES_AT_ONCE = 200, 8
#: Reasons of the Events that say what users did, by the first word of it.
_REASONS: Final = {
    "create": "CreatedByUser",
    "edit": "ChangedByUser",
    "action": "ActionByUser",
    "add": "AddedByUser",
    "delete": "DeletedByUser",
}
Json = dict[str, Any]
UpgradePlan = Callable[[Client, str, str], Awaitable[Sequence[Any]]]
"""What the next change of an instance (client, namespace, name) brings along: component, fields, waiting, trouble."""
Upgrades = Mapping[tuple[str, str], UpgradePlan]
"""Plans by group and plural of the kinds that have one."""
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Api:
    """The handlers; `routes` says where they answer."""

    def __init__(
        self,
        *,
        upstream: Upstream,
        access: Access,
        watches: Watches,
        sessions: Sessions,
        sign_in: SignIn,
        templates: Templates,
        clock: Clock,
        stop: asyncio.Event,
        terminals: Terminals | None = None,
        queries: Queries | None = None,
        upgrades: Upgrades | None = None,
        version: str = "",
    ) -> None:
        self._upstream = upstream
        self._access = access
        self._watches = watches
        self._sessions = sessions
        self._sign_in = sign_in
        self._templates = templates
        self._clock = clock
        self._stop = stop
        self._records = Records(upstream, clock)
        self._terminals = terminals
        self._queries = queries
        self._upgrades = upgrades or {}
        self._version = version
        self._followed: Counter[str] = Counter()
        self._failed: list[float] = []
        self._trying: set[str] = set()
        self._leases = Leases(upstream, watches, clock)

    def routes(self) -> list[web.RouteDef]:
        """All routes; those of the session are the only ones without one."""
        namespace = "/api/v1/namespaces/{namespace}/instances"
        one = namespace + "/{entry}/{name}"
        return [
            web.get("/api/v1/openapi.json", self.openapi),
            web.get("/api/v1/signin", self.ways),
            web.get("/api/v1/session", self.session),
            web.post("/api/v1/session", self.sign_in),
            web.delete("/api/v1/session", self.sign_out),
            web.post("/api/v1/session/refresh", self.refresh),
            web.get("/api/v1/catalog", self.catalog),
            web.get("/api/v1/catalog/{entry}", self.entry),
            web.get("/api/v1/namespaces", self.namespaces),
            web.get("/api/v1/instances", self.instances),
            web.post(namespace, self.create),
            web.get(one, self.instance),
            web.get(one + "/events", self.events),
            web.get(one + "/form", self.form),
            web.get(one + "/diagnosis", self.diagnosis),
            web.get(one + "/actions", self.actions),
            web.post(one + "/actions/{action}", self.act),
            web.get(one + "/metrics", self.metrics),
            web.get(one + "/collections", self.collections),
            web.post(one + "/collections/{collection}", self.add),
            web.delete(one + "/collections/{collection}/{object}", self.remove),
            web.get(one + "/pods", self.pods),
            web.get(one + "/pods/{pod}/log", self.log),
            web.get(one + "/pods/{pod}/terminal", self.terminal),
            web.patch(one, self.edit),
            web.delete(one, self.delete),
            web.get("/api/v1/permissions", self.permissions),
            web.get("/api/v1/activity", self.activity),
            web.get("/api/v1/operators", self.operators),
            web.get("/api/v1/operators/upgrade", self.upgrade),
            web.post("/api/v1/templates/try", self.try_template),
            web.get("/api/v1/stream", self.stream),
        ]

    # --- session

    async def openapi(self, request: web.Request) -> web.Response:
        """This document."""
        return answer(document(self.routes()))

    async def ways(self, request: web.Request) -> web.Response:
        """How one can sign in; needs no session."""
        return answer(self._sign_in.ways())

    async def session(self, request: web.Request) -> web.Response:
        """Who is signed in, and the word that changes need."""
        return answer(self._told(request[SESSION]))

    def _told(self, session: Session) -> Json:
        return {
            "user": session.user,
            "csrf": session.csrf,
            "own": session.own,
            "via": session.via,
            "terminal": self._terminals is not None,
            "remaining": self._sessions.remaining(session),
            "renewable": bool(session.refresh),
        }

    async def refresh(self, request: web.Request) -> web.Response:
        """Go on with a new credential of the provider."""
        session = self._sessions.fitting(await self._sign_in.refresh(request[SESSION]))
        try:
            self._sessions.check(replace(session, ends=0.0))
        except SignedOut:
            # It was ended while the provider was asked: what came of that must not outlive it.
            await self._sign_in.end(session)
            raise
        response = answer(self._told(session))
        self.keep(request, response, session)
        return response

    async def sign_in(self, request: web.Request) -> web.Response:
        """Sign in with a bearer token, which the API server must accept."""
        if not self._sign_in.tokens:
            raise Problem(403, "NoTokens", "This console takes no tokens.")
        now = self._clock.monotonic()
        self._failed = [when for when in self._failed if now - when < SIGN_IN_SECONDS]
        if len(self._failed) >= FAILED_SIGN_INS:
            raise Problem(
                429,
                "TooManySignIns",
                "Too many tokens were wrong. Wait a moment.",
                retry_after=SIGN_IN_SECONDS,
            )
        body = await read_json(request)
        token = body.get("token")
        if not isinstance(token, str) or not (token := token.strip()):
            raise Problem(400, "TokenMissing", "Give a token.")
        if len(token) > TOKEN_LIMIT:
            raise Problem(413, "TokenTooLong", f"The token is longer than {TOKEN_LIMIT} bytes.")
        try:
            user = await user_of(self._upstream.bearer(token))
        except (ValueError, Unauthorized) as error:
            self._failed.append(now)
            raise Problem(401, "TokenWrong", "The API server does not accept this token.") from error
        session = self._sessions.begin(user=user, token=token)
        response = answer(self._told(session))
        self.keep(request, response, session)
        log.info("signed in", user=user)
        return response

    async def sign_out(self, request: web.Request) -> web.Response:
        """End the session."""
        session = request[SESSION]
        self._sessions.end(session)
        self._access.forget(session)
        await self._sign_in.end(session)
        response = answer({})
        self.forget(request, response)
        return response

    def keep(self, request: web.Request, response: web.StreamResponse, session: Session) -> None:
        """Give the session to the browser; raises `Problem` if it does not fit."""
        try:
            cookies = self._sessions.seal(self._sessions.fitting(session))
        except ValueError as error:
            raise Problem(431, "CredentialTooLong", f"This cannot be kept: {error}.") from error
        for name, value in cookies.items():
            response.set_cookie(
                name, value, path="/", secure=self._sessions.served, httponly=True, samesite="Strict"
            )
        self.forget(request, response, cookies)

    def forget(self, request: web.Request, response: web.StreamResponse, but: Container[str] = ()) -> None:
        """Take the cookies of a session away, but some."""
        for name in self._sessions.names:
            if name not in but and (name in request.cookies or name == self._sessions.cookie):
                response.del_cookie(
                    name, path="/", secure=self._sessions.served, httponly=True, samesite="Strict"
                )

    # --- catalog

    async def catalog(self, request: web.Request) -> web.Response:
        """The entries, and the kinds of others that a form can be derived for."""
        entries = await self._templates.visible(request[SESSION])
        cards = [
            {**_card(entry), "served": await self._watches.serves(entry.spec.target)}
            for entry in entries.values()
        ]
        curated = {f"{e.spec.target.plural}.{e.spec.target.group}" for e in entries.values()}
        try:
            names = await self._definitions(self._upstream.client(request[SESSION]))
        except (Forbidden, NotFound):
            names = []  # a user who may not list definitions has the entries alone
        # What the catalog itself is made of is no service.
        others = [name for name in names if name not in curated and not name.endswith(f".{TEMPLATES.group}")]
        problems = await self._templates.problems(request[SESSION])
        return answer({"entries": cards, "others": others, "problems": problems})

    async def _definitions(self, client: Client) -> list[str]:
        # Names are all that is needed; the definitions themselves are megabytes.
        accept = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
        query = {"limit": str(MOST_DEFINITIONS)}
        found = msgspec.json.decode(
            (await client.request("GET", _DEFINITIONS, query=query, accept=accept)).body
        )
        return sorted(item["metadata"]["name"] for item in found.get("items") or ())

    async def entry(self, request: web.Request) -> web.Response:
        """One entry with its form."""
        entry = await self._entry(request, request.match_info["entry"])
        shown = msgspec.to_builtins(entry)
        return answer({**_card(entry), "form": shown["spec"], "defaults": defaults(entry)})

    async def _entry(self, request: web.Request, name: str, namespace: str = "") -> Entry:
        """An entry by name, a basic one as ``crd-PLURAL.GROUP`` if the user may read the definition.

        One of a namespace is there for instances of that ``namespace`` alone.
        """
        if (offered := await self._templates.find(request[SESSION], name)) is not None:
            if namespace and offered.namespace not in ("", namespace):
                raise Problem(404, "OtherNamespace", f"The entry is offered in {offered.namespace} alone.")
            return offered
        definition = name.removeprefix("crd-")
        if definition == name or not _DEFINITION.fullmatch(definition):
            raise Problem(404, "NoSuchEntry", f"The catalog has no entry {name!r}.")
        client = self._upstream.client(request[SESSION])
        found = msgspec.json.decode((await client.request("GET", f"{_DEFINITIONS}/{definition}")).body)
        try:
            entry = basic_entry(found)
        except CatalogError as error:
            raise Problem(404, "NoSuchEntry", str(error)) from error
        if not entry.spec.target.namespaced:
            raise Problem(
                404,
                "NotNamespaced",
                f"{entry.spec.target.kind} is of the whole cluster; the console makes what is in namespaces.",
            )
        return entry

    # --- namespaces and rights

    async def namespaces(self, request: web.Request) -> web.Response:
        """The namespaces in which the user may list instances of the catalog, or all that they may list."""
        session, names = request[SESSION], await self._watches.candidates()
        if await self._access.allowed(session, "list", Namespace.resource, ""):
            return answer({"namespaces": list(names)})
        seen: set[str] = set()
        for entry in distinct(list((await self._templates.visible(session)).values())):
            known = (entry.namespace,) if entry.namespace else names
            where = await self._access.namespaces(session, entry.spec.target.resource, known, "list")
            seen |= set(known) if where is None else where
        return answer({"namespaces": sorted(seen)})

    async def permissions(self, request: web.Request) -> web.Response:
        """What the user may do with instances of an entry in a namespace."""
        namespace = _namespace(request.query.get("namespace", ""))
        entry = await self._entry(request, request.query.get("entry", ""), namespace)
        resource = entry.spec.target.resource
        decide = self._access.decide
        verbs = ("create", "get", "patch", "delete")
        answers = await asyncio.gather(
            *(decide(request[SESSION], verb, resource, namespace) for verb in verbs)
        )
        terminal = await may_open(self._access, request[SESSION], namespace)
        return answer({**dict(zip(verbs, answers, strict=True)), "terminal": terminal})

    async def operators(self, request: web.Request) -> web.Response:
        """Which operators work, and who manages the instances that the user sees."""
        entries = distinct(list((await self._templates.visible(request[SESSION])).values()))
        view = await self._view(request, request.query)
        await view.look()
        leases = await self._leases.read()
        if leases is None:
            return answer(
                {"operators": [], "orphans": [], "contested": [], "unknown": [e.name for e in entries]}
            )
        candidates = await self._watches.candidates()
        seen = await self._access.namespaces(request[SESSION], Lease.resource, candidates, "list")
        served = [e for e in entries if await self._watches.serves(e.spec.target)]
        return answer(operators(view.objects(), leases, entries=served, seen=seen, now=self._clock.now()))

    async def activity(self, request: web.Request) -> web.Response:
        """Who did what with instances, and when, newest first."""
        query = request.query
        namespace = _namespace(query["namespace"]) if query.get("namespace") else ""
        entries = list((await self._templates.visible(request[SESSION])).values())
        if query.get("entry"):
            entries = [await self._entry(request, query["entry"], namespace)]
        found = await activity_of(
            distinct(entries),
            session=request[SESSION],
            access=self._access,
            watches=self._watches,
            upstream=self._upstream,
            namespace=namespace,
            name=_name(query["name"]) if query.get("name") else "",
        )
        return answer(found)

    async def upgrade(self, request: web.Request) -> web.Response:
        """What this version of the operators would change with the next change of each instance, read as the user."""
        view = await self._view(request, request.query)
        await view.look()
        client, slots = self._upstream.client(request[SESSION]), asyncio.Semaphore(UPGRADES_AT_ONCE)
        wanted = [
            (entry, obj.metadata.namespace or "", obj.metadata.name or "", plan)
            for entry, obj in view.objects()
            if (plan := self._upgrades.get((entry.spec.target.group, entry.spec.target.plural))) is not None
        ]

        async def planned(entry: Entry, namespace: str, name: str, plan: UpgradePlan) -> list[Json]:
            named = {"entry": entry.name, "namespace": namespace, "name": name}
            try:
                async with slots:
                    found = await plan(client, namespace, name)
            except Unauthorized:
                raise
            except NotFound:
                return []
            except KubeError as error:
                told = problem_of(error).detail
                return [{**named, "component": "", "fields": [], "waiting": False, "trouble": told}]
            return [
                {
                    **named,
                    "component": one.component,
                    "fields": list(one.fields),
                    "waiting": one.waiting,
                    "trouble": one.trouble,
                }
                for one in found
            ]

        rows = await asyncio.gather(*(planned(*each) for each in wanted[:MOST_UPGRADES]))
        return answer(
            {
                "version": self._version,
                "rows": [row for some in rows for row in some],
                "instances": len(wanted),
                "truncated": len(wanted) > MOST_UPGRADES,
            }
        )

    async def try_template(self, request: web.Request) -> web.Response:
        """What is wrong with a template by line, its form, and the manifest it makes; nothing is kept."""
        body = await read_json(request)
        text, values = body.get("yaml"), body.get("values")
        if not isinstance(text, str) or not (values is None or isinstance(values, dict)):
            raise Problem(400, "TemplateMissing", "Give yaml, a text, and values, an object.")
        session = request[SESSION]
        if session.user in self._trying:
            raise Problem(429, "OneAtATime", "A template of yours is being tried.", retry_after=1)
        client = self._upstream.client(session)
        trial = asyncio.ensure_future(tried(client, text, values, name="example", namespace="default"))
        self._trying.add(session.user)
        # A request that is given up ends no thread: the next one waits for the trial itself.
        trial.add_done_callback(lambda _: self._trying.discard(session.user))
        return answer(await asyncio.shield(trial))

    # --- instances

    async def _view(self, request: web.Request, query: Mapping[str, str]) -> View:
        namespace = _namespace(query["namespace"]) if query.get("namespace") else ""
        entries = distinct(list((await self._templates.visible(request[SESSION])).values()))
        focus = None
        if query.get("entry"):
            entry = await self._entry(request, query["entry"], namespace)
            entries = [entry]
            if query.get("name"):
                if not namespace:
                    raise Problem(400, "NamespaceMissing", "An instance needs its namespace.")
                focus = (entry, Key(namespace, _name(query["name"])))
        return View(
            session=request[SESSION],
            access=self._access,
            watches=self._watches,
            entries=entries,
            namespace=namespace,
            focus=focus,
        )

    async def instances(self, request: web.Request) -> web.Response:
        """The instances that the user may see, without their specs."""
        view = await self._view(request, request.query)
        await view.look()
        return answer(view.snapshot())

    async def instance(self, request: web.Request) -> web.Response:
        """One instance as the API server shows it to the user, without secrets."""
        entry, namespace, name = await self._named(request)
        path = entry.spec.target.resource.path(namespace=namespace, name=name)
        found = await self._upstream.client(request[SESSION]).request("GET", path)
        shown = mask(msgspec.json.decode(found.body), entry.sensitive)
        retention = msgspec.to_builtins(entry.spec.retention)
        visible = (await self._templates.visible(request[SESSION])).values()
        offered = [one for one in visible if one.namespace in ("", namespace)]
        return answer(
            {
                "card": _card(entry),
                "object": shown,
                "yaml": to_yaml(shown),
                "retention": retention,
                "restores": restores_of(offered, shown, entry.spec.target),
            }
        )

    async def events(self, request: web.Request) -> web.Response:
        """The newest events of one instance, read as the user."""
        entry, namespace, name = await self._named(request)
        resource = entry.spec.target.resource
        selector = f"involvedObject.kind={resource.kind},involvedObject.name={name}"
        client = self._upstream.client(request[SESSION])
        page = await client.list(Event, namespace=namespace, field_selector=selector, limit=500)
        wanted = [
            e
            for e in page.items
            if e.involved_object and e.involved_object.api_version == resource.api_version
        ]
        rows = sorted(map(event_row, wanted), key=lambda each: str(each["last"]), reverse=True)
        return answer({"events": rows[:EVENT_LIMIT]})

    async def _named(self, request: web.Request) -> tuple[Entry, str, str]:
        namespace, name = _namespace(request.match_info["namespace"]), _name(request.match_info["name"])
        return await self._entry(request, request.match_info["entry"], namespace), namespace, name

    async def create(self, request: web.Request) -> web.Response:
        """Create an instance of the values of a form; with ``dryRun=true`` only find out what would happen."""
        namespace = _namespace(request.match_info["namespace"])
        body = await read_json(request)
        entry = await self._entry(request, str(body.get("entry") or ""), namespace)
        name, values = body.get("name"), body.get("values")
        if not isinstance(values, dict):
            raise Problem(400, "ValuesMissing", "values must be an object.")
        dry_run = request.query.get("dryRun") == "true"
        problems = check_name(name) + check_values(entry, values)
        if problems:
            errors = [msgspec.to_builtins(problem) for problem in problems]
            raise Problem(422, "WrongValues", "Some fields need attention.", errors=errors)
        client = self._upstream.client(request[SESSION])
        manifest = render(entry, name=str(name), namespace=namespace, values=values)
        if body.get("from") is not None:
            manifest = restored(*await origin_of(client, entry, namespace, body["from"]), manifest)
        shown = mask(manifest, entry.sensitive)
        needs = requests_of(entry, values)
        quota = await quota_of(client, namespace, entry, values, needs) if dry_run else None
        preview = {"manifest": shown, "yaml": to_yaml(shown), "requests": needs, "quota": quota}
        query = {"fieldManager": FIELD_MANAGER, "fieldValidation": "Strict"}
        if dry_run:
            query["dryRun"] = "All"
        secrets = [
            str(values[field]) for field, p in entry.parameters.items() if p.sensitive and values.get(field)
        ]
        path = entry.spec.target.resource.path(namespace=namespace)
        try:
            made = await client.request("POST", path, query=query, body=msgspec.json.encode(manifest))
        except ApiError as error:
            refused = refusal(entry, error, secrets)
            refused.more |= preview
            self._audit(request, "create", entry, namespace, str(name), result=refused.code, dry_run=dry_run)
            raise refused from error
        uid = str((msgspec.json.decode(made.body).get("metadata") or {}).get("uid") or "")
        self._audit(request, "create", entry, namespace, str(name), result="ok", dry_run=dry_run, uid=uid)
        warnings = [scrubbed(text, secrets) for text in _warnings(made.headers)]
        return answer({**preview, "warnings": warnings, "dryRun": dry_run}, status=200 if dry_run else 201)

    async def diagnosis(self, request: web.Request) -> web.Response:
        """Why an instance is not as it should be, from what the user may see; null if nothing is wrong."""
        entry, namespace, name = await self._named(request)
        operator, target = entry.spec.operator, entry.spec.target.resource
        facts = await gather(
            self._upstream.client(request[SESSION]),
            target,
            namespace=namespace,
            name=name,
            conditions=(entry.spec.status.conditions,),
            hint=operator.hint if operator is not None else None,
            ready=entry.spec.status.ready,
            select=selected(entry, name),
        )
        found = diagnose(facts)
        texts = {
            what: {"en": say(found, "en"), "zh": say(found, "zh")}
            for what, say in (("cause", cause), ("step", step))
            if found is not None
        }
        shown = {**msgspec.to_builtins(found), **texts} if found is not None else None
        return answer({"diagnosis": shown, "unseen": sorted(facts.unseen)})

    async def form(self, request: web.Request) -> web.Response:
        """The form and the document of a live instance, to begin an edit with."""
        entry, namespace, name = await self._named(request)
        path = entry.spec.target.resource.path(namespace=namespace, name=name)
        live = msgspec.json.decode((await self._upstream.client(request[SESSION]).request("GET", path)).body)
        shown = msgspec.to_builtins(entry.spec)
        return answer({**_card(entry), "form": shown, **form(entry, live)})

    async def edit(self, request: web.Request) -> web.Response:
        """Change an instance by what the user changed; with ``dryRun=true`` only find out what would happen."""
        entry, namespace, name = await self._named(request)
        dry_run = request.query.get("dryRun") == "true"
        edit = Edit(entry, await read_json(request))
        path = entry.spec.target.resource.path(namespace=namespace, name=name)
        audit = partial(self._audit, request, "edit", entry, namespace, name, dry_run=dry_run)
        try:
            edited, made = await edit.send(
                self._upstream.client(request[SESSION]), path, dry_run=dry_run, manager=FIELD_MANAGER
            )
        except ApiError as error:
            refused = refusal(entry, error, edit.secrets)
            refused.more["changes"] = edit.shown
            audit(result=refused.code)
            raise refused from error
        except Problem as problem:
            audit(result=problem.code)
            raise
        if made is not None:
            audit(result="ok", uid=edit.uid, detail=", ".join(str(one["path"]) for one in edited.changes))
        warnings = [scrubbed(text, edit.secrets) for text in _warnings(made.headers)] if made else []
        return answer({**msgspec.to_builtins(edited), "warnings": warnings, "dryRun": dry_run})

    async def actions(self, request: web.Request) -> web.Response:
        """The actions of an instance, and which of them make sense now."""
        entry, namespace, name = await self._named(request)
        path = entry.spec.target.resource.path(namespace=namespace, name=name)
        live = msgspec.json.decode((await self._upstream.client(request[SESSION]).request("GET", path)).body)
        shown = msgspec.to_builtins(entry.spec)
        parameters = shown.get("parameters", {}).get("properties", {})
        fields = {one.field: parameters[one.field] for one in entry.spec.actions if one.field}
        return answer(
            {"actions": actions_of(entry, live), "fields": fields, "values": values_of(entry, live)}
        )

    async def act(self, request: web.Request) -> web.Response:
        """Do an action; with ``dryRun=true`` only find out what would happen."""
        entry, namespace, name = await self._named(request)
        dry_run, action = request.query.get("dryRun") == "true", request.match_info["action"]
        body = await read_json(request)
        audit = partial(self._audit, request, f"action {action}", entry, namespace, name, dry_run=dry_run)
        try:
            done, made = await perform(
                self._upstream.client(request[SESSION]),
                entry,
                namespace=namespace,
                name=name,
                action=action,
                uid=str(body.get("uid") or ""),
                value=body.get("value"),
                now=self._clock.now(),
                manager=FIELD_MANAGER,
                dry_run=dry_run,
            )
        except ApiError as error:
            audit(result=error.reason)
            raise refusal(entry, error, []) from error
        except Problem as problem:
            audit(result=problem.code)
            raise
        audit(
            result="ok",
            uid=str(body.get("uid") or ""),
            detail=", ".join(str(one["path"]) for one in done.changes),
        )
        warnings = _warnings(made.headers) if made else []
        return answer({**msgspec.to_builtins(done), "warnings": warnings, "dryRun": dry_run})

    async def delete(self, request: web.Request) -> web.Response:
        """Delete an instance; the UID must be the one that the user was shown."""
        entry, namespace, name = await self._named(request)
        body = _delete_options(request)
        path = entry.spec.target.resource.path(namespace=namespace, name=name)
        client = self._upstream.client(request[SESSION])
        try:
            await client.request("DELETE", path, body=body)
        except ApiError as error:
            self._audit(request, "delete", entry, namespace, name, result=error.reason)
            raise
        uid = request.query.get("uid", "")
        self._audit(request, "delete", entry, namespace, name, result="ok", uid=uid)
        return answer({}, status=202)

    def _audit(
        self,
        request: web.Request,
        action: str,
        entry: Entry,
        namespace: str,
        name: str,
        *,
        result: str,
        dry_run: bool = False,
        uid: str = "",
        detail: str = "",
    ) -> None:
        """Log what a user did, and record it as an Event of the instance if it was done."""
        if dry_run:
            return
        user = request[SESSION].user
        log.info(
            "action",
            action=action,
            user=user,
            entry=entry.name,
            namespace=namespace,
            name=name,
            result=result,
        )
        if result == "ok":
            self._records.add(
                user=user,
                reason=_REASONS[action.partition(" ")[0]],
                message=f"{user}: {action}{f' ({detail})' if detail else ''}",
                detail=f"{action.partition(' ')[2]}: {detail}" if action.startswith("action ") else detail,
                resource=entry.spec.target.resource,
                namespace=namespace,
                name=name,
                uid=uid,
            )

    async def close(self) -> None:
        """Wait for what is still to be recorded."""
        await self._records.close()

    # --- stream

    @contextmanager
    def _following(self, session: Session, topics: int = 1) -> Iterator[None]:
        """Count more topics of a user; raises `Problem` when there are too many."""
        user = session.user
        if self._followed[user] + topics > USER_TOPICS or self._followed.total() + topics > ALL_TOPICS:
            raise Problem(429, "TooManyStreams", "Too many pages follow changes. Close some.", retry_after=10)
        self._followed[user] += topics
        try:
            yield
        finally:
            self._followed[user] -= topics
            if not self._followed[user]:
                del self._followed[user]

    async def stream(self, request: web.Request) -> web.StreamResponse:
        """Server-sent events: a snapshot, then changes; with ``topic`` several of them in one stream.

        With ``user`` only for this one: a page that outlives its user is told so.
        """
        session = request[SESSION]
        if request.query.get("user", session.user) != session.user:
            raise Problem(409, "OtherUser", "Somebody else is signed in by now. Load the page again.")
        topics = request.query.getall("topic", [])
        if len(topics) > MOST_TOPICS:
            raise Problem(400, "TooManyTopics", f"A stream has at most {MOST_TOPICS} topics.")
        if len(set(topics)) < len(topics):
            raise Problem(400, "TopicTwice", "A topic is there twice.")
        views: list[View | Problem]
        response = web.StreamResponse(headers={**STREAMED, "Content-Type": "text/event-stream"})
        with self._following(session, len(topics) or 1):
            try:
                # Before the first byte: who may see nothing gets an answer, not a stream.
                if topics:
                    views = [await self._topic(request, topic) for topic in topics]
                else:
                    view = await self._view(request, request.query)
                    await view.look()
                    views = [view]
                self._renew(request, response, session)
                await response.prepare(request)
                await self._send(request, response, views, topics)
                await response.write_eof()
            except (SignedOut, KubeError) as error:
                if not response.prepared:
                    raise
                reason = "signed-out" if isinstance(error, (SignedOut, Unauthorized)) else "failed"
                with suppress(ConnectionError):
                    await response.write(f'event: end\ndata: {{"reason":"{reason}"}}\n\n'.encode())
            except (ConnectionError, TimeoutError):
                pass  # the browser has gone, or reads no more
        return response

    async def _topic(self, request: web.Request, topic: str) -> View | Problem:
        """The view of a topic, or why it cannot be served; raises `Unauthorized`."""
        try:
            view = await self._view(request, dict(parse_qsl(topic)))
            await view.look()
        except Unauthorized:
            raise
        except KubeError as error:
            return problem_of(error)
        except Problem as problem:
            return problem
        return view

    async def _send(
        self,
        request: web.Request,
        response: web.StreamResponse,
        views: Sequence[View | Problem],
        topics: Sequence[str],
    ) -> None:
        """Send all views until the first of them ends."""
        session = request[SESSION]
        send = partial(
            View.send,
            response=response,
            clock=self._clock,
            check=lambda: self._sessions.check(session),
            stop=self._stop,
        )
        if topics:
            sending = [
                asyncio.ensure_future(self._send_topic(request, response, send, each, number, topics[number]))
                for number, each in enumerate(views)
            ]
        else:
            sending = [asyncio.ensure_future(send(each)) for each in views if isinstance(each, View)]
        try:
            done, _ = await asyncio.wait(sending, return_when=asyncio.FIRST_COMPLETED)
            for each in done:
                each.result()
        finally:
            for each in sending:
                each.cancel()
            await asyncio.gather(*sending, return_exceptions=True)

    async def _send_topic(
        self,
        request: web.Request,
        response: web.StreamResponse,
        send: Callable[..., Awaitable[None]],
        found: View | Problem,
        number: int,
        topic: str,
    ) -> None:
        """Send one topic; one that cannot be served says so, keeps no other from being served, and is tried again."""
        began = self._clock.monotonic()
        while not self._stop.is_set() and self._clock.monotonic() - began < LONGEST:
            if isinstance(found, View):
                try:
                    await send(found, topic=number)
                except Unauthorized:
                    raise
                except KubeError as error:
                    found = problem_of(error)
                else:
                    return
            message = {"topic": number, "rows": [], "denied": [], "problem": found.code}
            await write(response, "snapshot", message)
            await first(self._stop.wait, seconds=RECHECK)
            self._sessions.check(request[SESSION])
            found = await self._topic(request, topic)

    async def metrics(self, request: web.Request) -> web.Response:
        """What is measured of an instance: charts if there is a Prometheus, the use of now, figures of its status."""
        entry, namespace, name = await self._named(request)
        span, session = request.query.get("range", "1h"), request[SESSION]
        if span not in RANGES:
            raise Problem(400, "BadQuery", f"range must be one of {', '.join(RANGES)}.")
        client = self._upstream.client(session)
        path = entry.spec.target.resource.path(namespace=namespace, name=name)
        obj = msgspec.json.decode((await client.request("GET", path)).body)
        found: Json = {"source": "none", "charts": [], "usage": [], "figures": figures_of(entry, obj)}
        if self._queries is not None and entry.spec.metrics.charts and not entry.namespace:
            if not await self._access.allowed(session, "list", Pod.resource, namespace):
                return answer(found | {"source": "denied"})
            charts = await self._queries.charts(entry, namespace=namespace, name=name, span=span)
            return answer(found | {"source": "prometheus", "charts": charts})
        try:
            usage = await usage_of(client, obj, namespace=namespace, select=selected(entry, name))
        except Forbidden:
            return answer(found | {"source": "denied"})
        return answer(found if usage is None else found | {"source": "metrics.k8s.io", "usage": usage})

    # --- collections

    async def collections(self, request: web.Request) -> web.Response:
        """The collections of an instance, such as its backups, read as the user."""
        entry, namespace, name = await self._named(request)
        client = self._upstream.client(request[SESSION])
        visible = (await self._templates.visible(request[SESSION])).values()
        pages = {one.spec.target: one.name for one in visible if one.namespace in ("", namespace)}
        shown = await collections_of(client, entry, namespace=namespace, name=name, pages=pages)
        for told, one in zip(shown, entry.spec.collections, strict=True):
            where = (one.target.resource, namespace if one.target.namespaced else "")
            told["mayCreate"], told["mayDelete"] = await asyncio.gather(
                *(self._access.decide(request[SESSION], verb, *where) for verb in ("create", "delete"))
            )
        return answer({"collections": shown})

    async def add(self, request: web.Request) -> web.Response:
        """Make an object of a collection; with ``dryRun=true`` only find out what would happen."""
        entry, namespace, name = await self._named(request)
        one = collection_of(entry, request.match_info["collection"])
        dry_run, body = request.query.get("dryRun") == "true", await read_json(request)
        manifest = manifest_of(one, namespace=namespace, instance=name, body=body)
        query = {"fieldManager": FIELD_MANAGER, "fieldValidation": "Strict"}
        path = one.target.resource.path(namespace=namespace)
        audit = partial(self._audit, request, f"add to {one.name}", entry, namespace, name, dry_run=dry_run)
        try:
            made = await self._upstream.client(request[SESSION]).request(
                "POST",
                path,
                query=query | ({"dryRun": "All"} if dry_run else {}),
                body=msgspec.json.encode(manifest),
            )
        except ApiError as error:
            audit(result=error.reason)
            raise refusal(entry, error, []) from error
        audit(result="ok", detail=f"{one.target.kind} {manifest['metadata']['name']}")
        shown = {"manifest": manifest, "yaml": to_yaml(manifest), "warnings": _warnings(made.headers)}
        return answer({**shown, "dryRun": dry_run}, status=200 if dry_run else 201)

    async def remove(self, request: web.Request) -> web.Response:
        """Delete an object of a collection; the UID must be the one that the user was shown."""
        entry, namespace, name = await self._named(request)
        one = collection_of(entry, request.match_info["collection"])
        client, found = self._upstream.client(request[SESSION]), _name(request.match_info["object"])
        path = one.target.resource.path(namespace=namespace, name=found)
        item = msgspec.json.decode((await client.request("GET", path)).body)
        if not belongs(one, item, namespace=namespace, name=name):
            raise Problem(404, "NotOfInstance", f"{one.target.kind} {found} does not belong to {name}.")
        audit = partial(self._audit, request, f"delete {found} of {one.name}", entry, namespace, name)
        try:
            await client.request("DELETE", path, body=_delete_options(request))
        except ApiError as error:
            audit(result=error.reason)
            raise
        audit(result="ok", detail=f"{one.target.kind} {found}")
        return answer({}, status=202)

    async def pods(self, request: web.Request) -> web.Response:
        """The pods of an instance with their part, role and node; null when the user may not list pods."""
        entry, namespace, name = await self._named(request)
        client = self._upstream.client(request[SESSION])
        path = entry.spec.target.resource.path(namespace=namespace, name=name)
        obj = msgspec.json.decode((await client.request("GET", path)).body)
        found = await pods_of(client, obj, namespace=namespace, select=selected(entry, name))
        topology = msgspec.to_builtins(entry.spec.topology)
        titles = {"roles": topology.get("roles", {}), "parts": topology.get("parts", {})}
        return answer({"pods": None if found is None else pod_rows(entry, obj, found), **titles})

    async def log(self, request: web.Request) -> web.StreamResponse:
        """The log of a container as lines of text; with ``follow=true`` until the browser goes."""
        _, namespace, _ = await self._named(request)
        pod, session = _name(request.match_info["pod"]), request[SESSION]
        try:
            query = log_query(request.query)
        except ValueError as error:
            raise Problem(400, "BadQuery", "lines must be a number.") from error
        path = f"/api/v1/namespaces/{namespace}/pods/{pod}/log"
        transport = self._upstream.client(session).transport
        response = web.StreamResponse(headers={**STREAMED, "Content-Type": "text/plain; charset=utf-8"})
        with self._following(session):
            async with transport.stream("GET", path, query=query) as source:
                if source.status >= 400:
                    raise api_error(source.status, await source.read(), source.headers)
                self._renew(request, response, session)
                with suppress(SignedOut, ConnectionError, TimeoutError):
                    await response.prepare(request)
                    await forward(
                        source, response, check=lambda: self._sessions.check(session), stop=self._stop
                    )
                    await response.write_eof()
        return response

    async def terminal(self, request: web.Request) -> web.StreamResponse:
        """A shell in a container, over a WebSocket."""
        entry, namespace, name = await self._named(request)
        if self._terminals is None:
            raise Problem(
                403, "NoTerminals", "This console opens no terminals. Its setting is terminal: true."
            )
        place = Place(
            namespace=namespace,
            entry=entry.name,
            name=name,
            pod=_name(request.match_info["pod"]),
            container=_name(request.query.get("container", "")),
        )
        return await self._terminals.serve(request, request[SESSION], place)

    def _renew(self, request: web.Request, response: web.StreamResponse, session: Session) -> None:
        if (renewed := self._sessions.renewed(session)) is not None:
            self.keep(request, response, renewed)

    def renew(self, request: web.Request, response: web.StreamResponse, session: Session) -> None:
        """Give the browser a fresh cookie now and then, as long as it is used."""
        if not response.prepared and self._sessions.cookie not in response.cookies:
            self._renew(request, response, session)


def _delete_options(request: web.Request) -> bytes:
    """What a request to delete is sent with: the object must be the one that was shown; raises `Problem`."""
    uid = request.query.get("uid", "")
    if not uid:
        raise Problem(400, "UidMissing", "Say which object is meant: ?uid=")
    body = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"}
    return msgspec.json.encode({**body, "preconditions": {"uid": uid}})


def _card(entry: Entry) -> Json:
    spec = entry.spec
    return {
        "name": entry.name,
        "curated": entry.curated,
        "companion": spec.companion,
        "namespace": entry.namespace,
        "display": msgspec.to_builtins(spec.display),
        "target": msgspec.to_builtins(spec.target),
    }


def _namespace(text: str) -> str:
    if not _NAMESPACE.fullmatch(text):
        raise Problem(400, "NoNamespace", f"{text[:80]!r} is no name of a namespace.")
    return text


def _name(text: str) -> str:
    if not _OBJECT.fullmatch(text):
        raise Problem(400, "NoName", f"{text[:80]!r} is no name of an object.")
    return text


def _warnings(headers: Mapping[str, str]) -> list[str]:
    every = getattr(headers, "getall", None)
    lines = (
        every("Warning", [])
        if every is not None
        else [v for k, v in headers.items() if k.lower() == "warning"]
    )
    return [text.replace('\\"', '"') for line in lines for text in _WARNING.findall(line)]


async def read_json(request: web.Request) -> Json:
    """The body of a request; raises `Problem`."""
    try:
        body = msgspec.json.decode(await request.read())
    except (msgspec.MsgspecError, RecursionError) as error:
        raise Problem(400, "NotJson", "The body is not JSON.") from error
    if not isinstance(body, dict):
        raise Problem(400, "NotJson", "The body must be a JSON object.")
    return body


def answer(body: Any, *, status: int = 200) -> web.Response:
    """JSON."""
    return web.Response(status=status, body=msgspec.json.encode(body), content_type="application/json")
