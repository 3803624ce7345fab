// Ctrl-K: go anywhere by typing. What can be reached is read when it is opened.
import { useEffect, useMemo, useRef, useState, type KeyboardEvent } from "react";
import { api } from "./api";
import { useSpeech } from "./i18n";
import { to } from "./route";

interface Goal {
  label: string;
  hint: string;
  href: string;
}

const SHOWN = 12;

export function Palette() {
  const { t, say } = useSpeech();
  const [open, setOpen] = useState(false);
  const [goals, setGoals] = useState<Goal[]>([]);
  const [typed, setTyped] = useState("");
  const [at, setAt] = useState(0);
  const dialog = useRef<HTMLDialogElement>(null);

  useEffect(() => {
    const pressed = (event: globalThis.KeyboardEvent) => {
      if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k") {
        event.preventDefault();
        setOpen(true);
      }
    };
    document.addEventListener("keydown", pressed);
    return () => document.removeEventListener("keydown", pressed);
  }, []);
  useEffect(() => {
    if (!open) return;
    dialog.current?.showModal();
    setTyped("");
    setAt(0);
    const pages: Goal[] = [
      { label: t("nav.catalog"), hint: "", href: to("catalog") },
      { label: t("nav.instances"), hint: "", href: to("instances") },
      { label: t("activity.title"), hint: "", href: to("activity") },
      { label: t("operators.title"), hint: "", href: to("operators") },
      { label: t("templates.title"), hint: "", href: to("templates") },
    ];
    setGoals(pages);
    void Promise.allSettled([api.catalog(), api.instances()]).then(([catalog, instances]) => {
      const cards = catalog.status === "fulfilled" ? catalog.value.entries.filter((card) => card.served) : [];
      const title = new Map(cards.map((card) => [card.name, say(card.display.title)]));
      const make = cards.map((card) => ({
        label: t("create.title", { title: say(card.display.title) }),
        hint: "",
        href: to("create", card.name),
      }));
      const rows = instances.status === "fulfilled" ? instances.value.rows : [];
      const seen = rows.map((row) => ({
        label: row.name,
        hint: `${row.namespace} · ${title.get(row.entry) ?? row.entry}`,
        href: to("instances", row.namespace, row.entry, row.name),
      }));
      setGoals([...pages, ...make, ...seen]);
    });
  }, [open, t, say]);

  const found = useMemo(() => {
    const words = typed.toLowerCase().split(/\s+/).filter(Boolean);
    return goals.filter((goal) => words.every((word) => `${goal.label} ${goal.hint}`.toLowerCase().includes(word))).slice(0, SHOWN);
  }, [goals, typed]);
  const choose = (goal: Goal | undefined) => {
    if (!goal) return;
    setOpen(false);
    window.location.hash = goal.href;
  };
  const move = (event: KeyboardEvent) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step === undefined || found.length === 0) return;
    event.preventDefault();
    setAt((old) => (Math.min(old, found.length - 1) + step + found.length) % found.length);
  };
  const current = Math.min(at, Math.max(found.length - 1, 0));
  return (
    <>
      <button className="plain" onClick={() => setOpen(true)} aria-keyshortcuts="Control+K" data-testid="palette-open">
        {t("palette.open")} <kbd>Ctrl K</kbd>
      </button>
      {open ? (
        <dialog ref={dialog} className="palette" onClose={() => setOpen(false)} aria-label={t("palette.open")} data-testid="palette">
          <form
            method="dialog"
            onSubmit={(event) => {
              event.preventDefault();
              choose(found[current]);
            }}
          >
            <input
              role="combobox"
              aria-expanded="true"
              aria-controls="palette-list"
              aria-activedescendant={found.length > 0 ? `palette-${current}` : undefined}
              aria-label={t("palette.hint")}
              placeholder={t("palette.hint")}
              autoComplete="off"
              spellCheck={false}
              value={typed}
              onChange={(event) => {
                setTyped(event.target.value);
                setAt(0);
              }}
              onKeyDown={move}
            />
          </form>
          <ul id="palette-list" role="listbox" aria-label={t("palette.open")}>
            {found.map((goal, index) => (
              <li
                key={goal.href}
                id={`palette-${index}`}
                role="option"
                aria-selected={index === current}
                onClick={() => choose(goal)}
              >
                {goal.label} <span className="quiet">{goal.hint}</span>
              </li>
            ))}
          </ul>
          {found.length === 0 ? <p className="quiet">{t("palette.none")}</p> : null}
        </dialog>
      ) : null}
    </>
  );
}
