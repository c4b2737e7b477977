import react from "@vitejs/plugin-react";
import { defineConfig } from "vite";

declare const process: { env: Record<string, string | undefined> };

// `npm run dev` talks to a server that runs already: MAINSPRING_URL says where.
const server = process.env["MAINSPRING_URL"] ?? "http://127.0.0.1:8700";
const proxy = Object.fromEntries(["/v1", "/readyz"].map((path) => [path, { target: server, headers: { Origin: server } }]));

export default defineConfig({
  base: "/ui/",
  plugins: [react({ jsxImportSource: "#visible" })],
  build: {
    outDir: "../src/mainspring/ui/static",
    emptyOutDir: true,
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    target: "es2023",
    reportCompressedSize: true,
  },
  worker: { format: "es" },
  server: { proxy },
  preview: { proxy },
});
