import react from "@vitejs/plugin-react";
import { defineConfig } from "vite";

declare const process: { env: Record<string, string | undefined> };

// `npm run dev` talks to a server that runs already: MAINSPRING_URL says where.
const server = process.env["MAINSPRING_URL"] ?? "http://127.0.0.1:8700";
const proxy = Object.fromEntries(["/v1", "/readyz"].map((path) => [path, { target: server, headers: { Origin: server } }]));

const SHELL = /node_modules\/(react|react-dom|scheduler|@tanstack)\/|src\/(main|app|router)\.|src\/(api|live)\/|src\/shell\/(BottomBar|Keys|Palette|places|Shell|SideBar|TopBar)|src\/ui\/(AsCommand|Button|Copy|Dialog|Page|Problem|StateMark|Tabs|Time|Toasts|hues)\.|src\/lib\/(call|format|json|patiently|preferences|search|shellWord|time|visible)/;
const LIST = /src\/ui\/(Field|Filters|List|Parts|Table|TimeRange|useKeyset|useSorted)\./;

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
    // Each request costs its headers and its turn. What every page needs is one file, and what most lists need another.
    rolldownOptions: {
      output: {
        codeSplitting: {
          groups: [
            { name: "shell", test: SHELL, priority: 2 },
            { name: "list", test: LIST, priority: 1 },
          ],
        },
      },
    },
  },
  worker: { format: "es" },
  server: { proxy },
  preview: { proxy },
});
