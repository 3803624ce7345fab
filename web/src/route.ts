// Where we are, in the address after the hash: /catalog, /create/ENTRY, /instances, /instances/NAMESPACE/ENTRY/NAME.
import { useEffect, useState } from "react";

export interface Route {
  parts: string[];
  query: URLSearchParams;
}

function read(): Route {
  const [path = "", query = ""] = window.location.hash.replace(/^#/, "").split("?", 2);
  const parts = path.split("/").filter(Boolean).map((part) => {
    try {
      return decodeURIComponent(part);
    } catch {
      return part;
    }
  });
  return { parts, query: new URLSearchParams(query) };
}

export function useRoute(): Route {
  const [route, setRoute] = useState(read);
  useEffect(() => {
    const moved = () => setRoute(read());
    window.addEventListener("hashchange", moved);
    return () => window.removeEventListener("hashchange", moved);
  }, []);
  return route;
}

export const to = (...parts: string[]) => `#/${parts.map(encodeURIComponent).join("/")}`;

export function go(...parts: string[]): void {
  window.location.hash = to(...parts);
}
