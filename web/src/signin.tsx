import { useState, type FormEvent, type ReactNode } from "react";
import { api, type Session } from "./api";
import { useSpeech } from "./i18n";
import { Failure, Head, Loading, useLoaded } from "./parts";

/** Where to go on afterwards: the page that asked for a sign-in. */
const back = () => (window.location.hash.startsWith("#/signin") || window.location.hash === "" ? "/" : `/${window.location.hash}`);

export function SignInPage(props: {
  refused: string;
  over: boolean;
  language: ReactNode;
  entered: (session: Session) => void;
}) {
  const { t } = useSpeech();
  const [token, setToken] = useState("");
  const [error, setError] = useState<unknown>(null);
  const [busy, setBusy] = useState(false);
  const ways = useLoaded(api.ways, []);
  const submit = (event: FormEvent) => {
    event.preventDefault();
    setBusy(true);
    setError(null);
    api
      .signIn(token)
      .then(
        (session) => {
          setToken("");
          props.entered(session);
        },
        (problem: unknown) => setError(problem),
      )
      .finally(() => setBusy(false));
  };
  const elsewhere = () => void api.session().then(props.entered, (problem: unknown) => setError(problem));
  return (
    <main className="narrow">
      <Head title={t("signin.title")}>{props.language}</Head>
      {props.refused !== "" ? (
        <p role="alert" className="notice bad" data-testid="refused">
          {props.refused === "oidc" ? t("signin.providerRefused") : t("signin.refused")}
        </p>
      ) : null}
      <Failure error={ways.error} again={ways.again} />
      {ways.data === null && ways.error === null ? <Loading /> : null}
      {ways.data && ways.data.oidc === null && !ways.data.proxy ? <p className="quiet">{t("signin.link")}</p> : null}
      {ways.data?.oidc ? (
        <p>
          <a className="button primary" href={`${ways.data.oidc}?${new URLSearchParams({ to: back() })}`} data-testid="provider">
            {t("signin.provider")}
          </a>
        </p>
      ) : null}
      {ways.data?.proxy ? <p className="quiet">{t("signin.proxy")}</p> : null}
      {props.over ? (
        <div role="status" className="notice" data-testid="over">
          <p>{t("signin.over")}</p>
          <button onClick={elsewhere}>{t("signin.elsewhere")}</button>
        </div>
      ) : null}
      {ways.data === null || ways.data.tokens ? (
      <form onSubmit={submit}>
        <div className="field">
          <label htmlFor="token">{t("signin.token")}</label>
          <input
            id="token"
            type="password"
            autoComplete="off"
            spellCheck={false}
            value={token}
            onChange={(event) => setToken(event.target.value)}
            aria-describedby="token-hint"
          />
          <p id="token-hint" className="quiet">
            {t("signin.hint")}
          </p>
        </div>
        <button className="primary" disabled={busy || token.trim() === ""}>
          {t("signin.submit")}
        </button>
      </form>
      ) : null}
      <Failure error={error} />
    </main>
  );
}
