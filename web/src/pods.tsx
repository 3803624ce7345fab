// The pods of an instance, asked again now and then while somebody looks.
import { useEffect, useState } from "react";
import { api, type Pod, type Pods } from "./api";
import { useLoaded, type Place } from "./parts";

const AGAIN = 4000;

/** `pods` is undefined until it is known, null when the user may not list pods. */
export function usePods(place: Place): {
  pods: Pod[] | null | undefined;
  titles: Pick<Pods, "roles" | "parts">;
  error: unknown;
  again: () => void;
} {
  const [turn, setTurn] = useState(0);
  const { data, error, again } = useLoaded(
    () => api.pods(place.namespace, place.entry, place.name),
    [place.namespace, place.entry, place.name, turn],
  );
  useEffect(() => {
    const timer = window.setInterval(() => {
      if (document.visibilityState === "visible") setTurn((old) => old + 1);
    }, AGAIN);
    return () => clearInterval(timer);
  }, []);
  return {
    pods: data === null ? undefined : data.pods,
    titles: data ?? { roles: {}, parts: {} },
    error: data === null ? error : null,
    again,
  };
}
