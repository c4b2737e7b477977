// Reads and writes YAML as the dashboard does: a JSON list of texts to read and values to write comes in, what they mean goes out.
import { mkdtempSync, rmSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

const dashboard = process.argv[2];
const { rolldown } = await import(pathToFileURL(createRequire(join(dashboard, "package.json")).resolve("rolldown")));
const folder = mkdtempSync(join(tmpdir(), "yaml-"));
const load = async (name) => {
  const file = join(folder, `${name}.mjs`);
  const bundle = await rolldown({ input: join(dashboard, "src", "lib", "yaml", `${name}.ts`) });
  await bundle.write({ file, format: "esm" });
  return import(pathToFileURL(file));
};
const { readYaml } = await load("read");
const { writeYaml } = await load("write");
rmSync(folder, { recursive: true });
const given = [];
for await (const part of process.stdin) given.push(part);
const { texts, values } = JSON.parse(Buffer.concat(given).toString());
const read = (text) => {
  try {
    const { value, lines } = readYaml(text);
    return { value, lines: Object.fromEntries(lines) };
  } catch (error) {
    if (error.line === undefined) throw error;
    return { line: error.line, message: error.message };
  }
};
process.stdout.write(JSON.stringify({ texts: texts.map(read), values: values.map(writeYaml) }));
