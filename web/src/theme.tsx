// Light, dark, or as the system says; kept with the language as the page's only memory.
import { useEffect, useState } from "react";
import { useSpeech, type Key } from "./i18n";

const KEPT = "mooring.theme";
const THEMES = ["auto", "light", "dark"] as const;
type Theme = (typeof THEMES)[number];

function first(): Theme {
  const kept = localStorage.getItem(KEPT);
  return THEMES.find((theme) => theme === kept) ?? "auto";
}

export function ThemeButton() {
  const { t } = useSpeech();
  const [theme, setTheme] = useState<Theme>(first);
  useEffect(() => {
    localStorage.setItem(KEPT, theme);
    if (theme === "auto") delete document.documentElement.dataset["theme"];
    else document.documentElement.dataset["theme"] = theme;
  }, [theme]);
  const next = THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length] ?? "auto";
  return (
    <button className="plain" onClick={() => setTheme(next)} data-testid="theme" data-theme-now={theme}>
      {t("theme.title", { theme: t(`theme.${theme}` as Key) })}
    </button>
  );
}
