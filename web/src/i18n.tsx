// Texts of the page in two languages; texts of the catalog come from the server in both.
import { createContext, useContext, useEffect, useMemo, useState, type ReactNode } from "react";
import en from "./locales/en.json";
import zh from "./locales/zh.json";

export type Language = "en" | "zh";
export type Key = keyof typeof en;
export interface Text {
  en?: string;
  zh?: string;
}

const texts: Record<Language, Record<Key, string>> = { en, zh };
const KEPT = "mooring.language";

interface Speech {
  language: Language;
  change: (language: Language) => void;
  t: (key: Key, values?: Record<string, string | number>) => string;
  say: (text: Text | undefined) => string;
}

const Context = createContext<Speech | null>(null);

function first(): Language {
  const kept = localStorage.getItem(KEPT);
  if (kept === "en" || kept === "zh") return kept;
  return navigator.language.toLowerCase().startsWith("zh") ? "zh" : "en";
}

export function Speaking({ children }: { children: ReactNode }) {
  const [language, setLanguage] = useState<Language>(first);
  useEffect(() => {
    document.documentElement.lang = language === "zh" ? "zh-CN" : "en";
  }, [language]);
  const speech = useMemo<Speech>(
    () => ({
      language,
      change: (next) => {
        localStorage.setItem(KEPT, next);
        setLanguage(next);
      },
      t: (key, values = {}) =>
        texts[language][key].replace(/\{(\w+)\}/g, (whole, name: string) => String(values[name] ?? whole)),
      say: (text) => text?.[language] || text?.en || "",
    }),
    [language],
  );
  return <Context value={speech}>{children}</Context>;
}

export function useSpeech(): Speech {
  const speech = useContext(Context);
  if (speech === null) throw new Error("outside of Speaking");
  return speech;
}
