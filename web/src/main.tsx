import { StrictMode } from "react";
import { createRoot } from "react-dom/client";
import { App } from "./app";
import { Speaking } from "./i18n";
import "./style.css";

const root = document.getElementById("root");
if (root === null) throw new Error("no root");
createRoot(root).render(
  <StrictMode>
    <Speaking>
      <App />
    </Speaking>
  </StrictMode>,
);
