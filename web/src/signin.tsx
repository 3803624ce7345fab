import { useState, type FormEvent, type ReactNode } from "react";
import { api, type Session } from "./api";
import { useSpeech } from "./i18n";
import { Failure, Head } from "./parts";

export function SignInPage(props: {
  refused: boolean;
  over: boolean;
  language: ReactNode;
  entered: (session: Session) => void;
}) {
  const { t } = useSpeech();
  const [token, setToken] = useState("");
  const [error, setError] = useState<unknown>(null);
  const [busy, setBusy] = useState(false);
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
      {props.refused ? (
        <p role="alert" className="notice bad">
          {t("signin.refused")}
        </p>
      ) : (
        <p className="quiet">{t("signin.link")}</p>
      )}
      {props.over ? (
        <div role="status" className="notice" data-testid="over">
          <p>{t("signin.over")}</p>
          <button onClick={elsewhere}>{t("signin.elsewhere")}</button>
        </div>
      ) : null}
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
      <Failure error={error} />
    </main>
  );
}
