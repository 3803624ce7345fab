// The frame around all pages, and who is signed in.
import { useEffect, useState } from "react";
import { ActivityPage } from "./activity";
import { api, onSignedOut, Problem, type Session } from "./api";
import { CatalogPage } from "./catalog";
import { CreatePage } from "./create";
import { EditPage } from "./edit";
import { useSpeech } from "./i18n";
import { InstancePage } from "./instance";
import { InstancesPage } from "./instances";
import { followAs } from "./live";
import { OperatorsPage } from "./operators";
import { Failure, Loading } from "./parts";
import { Palette } from "./palette";
import { go, to, useRoute } from "./route";
import { SignInPage } from "./signin";
import { TemplatesPage } from "./templates";
import { ThemeButton } from "./theme";

export function App() {
  const { t, language, change } = useSpeech();
  const [session, setSession] = useState<Session | null | undefined>(undefined);
  const [over, setOver] = useState(false);
  const [error, setError] = useState<unknown>(null);
  const { parts, query } = useRoute();
  const [turn, setTurn] = useState(0);
  const enter = (made: Session) => {
    followAs(made.user);
    setSession(made);
  };
  useEffect(() => {
    onSignedOut(() => setOver(true));
    setError(null);
    api.session().then(enter, (problem: unknown) => {
      if (problem instanceof Problem && problem.status === 401) setSession(null);
      else setError(problem);
    });
  }, [turn]);
  const languageButton = (
    <button className="plain" onClick={() => change(language === "en" ? "zh" : "en")}>
      {t("nav.language")}
    </button>
  );
  if (error !== null)
    return (
      <main className="narrow">
        <Failure error={error} again={() => setTurn(turn + 1)} />
      </main>
    );
  if (session === undefined) return <Loading />;
  const signIn = (
    <SignInPage
      refused={query.get("refused") ?? ""}
      over={over && session !== null}
      language={languageButton}
      entered={(made) => {
        setOver(false);
        enter(made);
        if (parts[0] === "signin") go("catalog");
      }}
    />
  );
  if (session === null) return signIn;
  const leave = () =>
    void api.signOut().finally(() => {
      setOver(false);
      setSession(null);
    });
  const [page = "catalog", a, b, c, d] = parts;
  const current = (name: string) => (page === name ? { "aria-current": "page" as const } : {});
  return (
    <>
      {over ? signIn : null}
      {/* When a session ends the page stays behind, with what was typed in it; another user gets a page of their own. */}
      <div key={session.user} hidden={over}>
      <div className="bar">
        <strong>Mooring</strong>
        <nav aria-label={t("nav.main")}>
          <a href={to("catalog")} {...current("catalog")}>
            {t("nav.catalog")}
          </a>
          <a href={to("instances")} {...current("instances")}>
            {t("nav.instances")}
          </a>
          <a href={to("activity")} {...current("activity")}>
            {t("activity.title")}
          </a>
          <a href={to("operators")} {...current("operators")}>
            {t("operators.title")}
          </a>
          <a href={to("templates")} {...current("templates")}>
            {t("templates.title")}
          </a>
        </nav>
        <span className="grow" />
        <Palette />
        <ThemeButton />
        {languageButton}
        <span data-testid="user">{session.user}</span>
        <button className="plain" onClick={leave}>
          {t("nav.signOut")}
        </button>
      </div>
      <main>
        {page === "create" && a ? (
          <CreatePage key={a} name={a} />
        ) : page === "instances" && a && b && c && d === "edit" ? (
          <EditPage key={`${a}/${b}/${c}`} namespace={a} entry={b} name={c} />
        ) : page === "instances" && a && b && c ? (
          <InstancePage key={`${a}/${b}/${c}`} namespace={a} entry={b} name={c} terminal={session.terminal} />
        ) : page === "instances" ? (
          <InstancesPage namespace={query.get("namespace") ?? ""} />
        ) : page === "activity" ? (
          <ActivityPage />
        ) : page === "operators" ? (
          <OperatorsPage />
        ) : page === "templates" ? (
          <TemplatesPage />
        ) : (
          <CatalogPage />
        )}
      </main>
      </div>
    </>
  );
}
