import react from "@vitejs/plugin-react";
import { defineConfig } from "vite";

// What is built is committed: `python hack/web.py --check` builds it again and compares.
export default defineConfig({
  plugins: [react()],
  build: {
    outDir: "../src/mooring/console/static",
    emptyOutDir: true,
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    target: "es2022",
  },
});
