// What has happened to an instance, the newest last: its creation, its events, and what its conditions changed to.
import type { Live } from "./live";
import { useSpeech } from "./i18n";
import { Age } from "./parts";

const SHOWN = 40;
/** Conditions that are True while something is under way or wrong. */
const ABNORMAL = new Set(["Progressing", "Stalled"]);

interface Step {
  key: string;
  when: string;
  sign: "✓" | "◔" | "▲";
  what: string;
  more: string;
}

function steps(live: Live, created: string): Step[] {
  const instance = live.instance;
  if (!instance) return [];
  const found: Step[] = [{ key: "created", when: instance.created, sign: "✓", what: created, more: "" }];
  for (const each of live.events ?? [])
    found.push({
      key: `event ${each.uid}`,
      when: each.last,
      sign: each.type === "Warning" ? "▲" : "✓",
      what: each.reason,
      more: each.count > 1 ? `${each.message} ×${each.count}` : each.message,
    });
  for (const each of instance.conditions)
    // That nothing is under way, or in the way, is no step.
    if (each.lastTransitionTime && !(ABNORMAL.has(each.type) && each.status === "False"))
      found.push({
        key: `condition ${each.type} ${each.lastTransitionTime}`,
        when: each.lastTransitionTime,
        sign: each.type === "Stalled" ? "▲" : each.status === "True" && each.type !== "Progressing" ? "✓" : "◔",
        what: `${each.type}: ${each.status}`,
        more: each.message || each.reason,
      });
  return found.sort((a, b) => Date.parse(a.when) - Date.parse(b.when)).slice(-SHOWN);
}

export function Timeline({ live }: { live: Live }) {
  const { t } = useSpeech();
  const rows = steps(live, t("timeline.created"));
  if (rows.length === 0) return null;
  return (
    <>
      <h2 id="timeline-title">{t("timeline.title")}</h2>
      <ol className={live.connected ? "timeline" : "timeline stale"} aria-labelledby="timeline-title" data-testid="timeline">
        {rows.map((each) => (
          <li key={each.key} className={each.sign === "▲" ? "bad" : ""}>
            <span aria-hidden="true">{each.sign}</span> <Age since={each.when} /> <strong>{each.what}</strong>{" "}
            <span className="quiet">{each.more}</span>
          </li>
        ))}
      </ol>
    </>
  );
}
