// What an instance needs, beside what the namespace's quotas leave.
import type { Preview } from "./api";
import { amount } from "./chart";
import { useSpeech } from "./i18n";

const unit = (resource: string) => (/memory|storage/.test(resource) ? "bytes" : "");

export function Quota({ preview, label }: { preview: Preview; label: (field: string) => string }) {
  const { t } = useSpeech();
  const { quota, requests } = preview;
  const needs = Object.entries(requests).filter(([, value]) => value > 0);
  const bounded = quota?.rows.filter((row) => row.wanted > 0) ?? [];
  const named = (resource: string) => resource.replace(/^requests\./, "");
  if (needs.length === 0 && (quota === null || (quota.rows.length === 0 && !quota.denied))) return null;
  return (
    <section aria-labelledby="quota-title" data-testid="quota">
      <h2 id="quota-title">{t("quota.title")}</h2>
      <dl>
        {needs.map(([resource, value]) => (
          <div key={resource} className="pair">
            <dt>{named(resource)}</dt>
            <dd>{amount(value, unit(resource))}</dd>
          </div>
        ))}
      </dl>
      {bounded.map((row) => {
        const of = (value: number) => amount(value, unit(row.resource));
        const full = Math.max(row.hard, row.used + row.wanted) || 1;
        const said = t("quota.row", { resource: named(row.resource), used: of(row.used), wanted: of(row.wanted), hard: of(row.hard) });
        return (
          <div key={`${row.quota}/${row.resource}`} className={row.over ? "quota over" : "quota"}>
            <p className={row.over ? "error" : "quiet"}>
              {row.over ? "▲ " : ""}
              {said}
            </p>
            <svg viewBox="0 0 100 4" preserveAspectRatio="none" role="img" aria-label={said}>
              <rect className="bar-free" width="100" height="4" />
              <rect className="bar-used" width={(row.used / full) * 100} height="4" />
              <rect className="bar-wanted" x={(row.used / full) * 100} width={(row.wanted / full) * 100} height="4" />
              <line className="bar-hard" x1={(row.hard / full) * 100} x2={(row.hard / full) * 100} y1="0" y2="4" />
            </svg>
            {row.over ? (
              <p className="error" role="status">
                {t("quota.over", { quota: row.quota, amount: of(row.used + row.wanted - row.hard) })}
              </p>
            ) : null}
          </div>
        );
      })}
      {quota?.limits.map((row) => (
        <p key={`${row.range}/${row.field}/${row.bound}`} className="error" role="status">
          {row.bound === "max"
            ? t("quota.max", { field: label(row.field), limit: row.limit, range: row.range })
            : t("quota.min", { field: label(row.field), limit: row.limit, range: row.range })}
        </p>
      ))}
      {quota?.denied ? <p className="quiet">{t("quota.denied")}</p> : null}
    </section>
  );
}
