// Who is where: the pods of an instance by part, role and node, as its entry tells them apart.
import type { Pod } from "./api";
import { useSpeech } from "./i18n";
import { Age, Failure, Loading, type Place } from "./parts";
import { usePods } from "./pods";

export function Topology({ place }: { place: Place }) {
  const { t, say } = useSpeech();
  const { pods, titles, error, again } = usePods(place);
  if (error !== null) return <Failure error={error} again={again} />;
  if (pods === undefined) return <Loading />;
  if (pods === null) return <p className="notice">{t("pods.denied")}</p>;
  if (pods.length === 0) return <p className="quiet">{t("pods.none")}</p>;
  const role = (pod: Pod) => say(titles.roles[pod.role]) || pod.role || "–";
  const parts = [...new Set(pods.map((pod) => pod.part))];
  const nodes = [...new Set(pods.map((pod) => pod.node))].sort();
  return (
    <>
      <h2>{t("topology.nodes")}</h2>
      <ul className="nodes" data-testid="nodes">
        {nodes.map((node) => (
          <li key={node} className="card">
            <h3>{node || t("topology.nowhere")}</h3>
            <ul className="pods">
              {pods
                .filter((pod) => pod.node === node)
                .map((pod) => (
                  <li key={pod.name} className={pod.ready ? "pod ready" : "pod"}>
                    <span aria-hidden="true">{pod.ready ? "●" : "◔"}</span> {pod.name}
                    <span className="quiet">
                      {" "}
                      {pod.role ? `${role(pod)}, ` : ""}
                      {pod.ready ? t("topology.ready") : pod.why || pod.phase}
                    </span>
                  </li>
                ))}
            </ul>
          </li>
        ))}
      </ul>
      {parts.map((part) => (
        <section key={part}>
          <h2>{say(titles.parts[part]) || part || t("topology.pods")}</h2>
          <div className="scroll" tabIndex={0} role="region" aria-label={say(titles.parts[part]) || part || t("topology.pods")}>
            <table data-testid={`pods-${part}`}>
              <thead>
                <tr>
                  <th scope="col">{t("topology.pod")}</th>
                  <th scope="col">{t("topology.role")}</th>
                  <th scope="col">{t("topology.state")}</th>
                  <th scope="col">{t("topology.node")}</th>
                  <th scope="col">{t("topology.address")}</th>
                  <th scope="col">{t("topology.restarts")}</th>
                  <th scope="col">{t("common.age")}</th>
                </tr>
              </thead>
              <tbody>
                {pods
                  .filter((pod) => pod.part === part)
                  .map((pod) => (
                    <tr key={pod.name}>
                      <th scope="row">{pod.name}</th>
                      <td>{role(pod)}</td>
                      <td>{[pod.ready ? t("topology.ready") : pod.why || pod.phase, pod.state].filter(Boolean).join(" · ")}</td>
                      <td>{pod.node || "–"}</td>
                      <td>{pod.ip || "–"}</td>
                      <td>{pod.restarts}</td>
                      <td>
                        <Age since={pod.created} />
                      </td>
                    </tr>
                  ))}
              </tbody>
            </table>
          </div>
        </section>
      ))}
    </>
  );
}
