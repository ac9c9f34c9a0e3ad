// Predict from a file that `ddpn export` wrote, with ONNX Runtime alone: node predict.mjs model.onnx rows.json
//
// rows.json holds a list of rows such as {"age": 61, "ward": "B", "when": "2024-03-05T14:30"}; a column that a row does
// not have is missing. One line of JSON is printed per row.
import { readFile } from "node:fs/promises";
import * as ort from "onnxruntime-node";

/** A cell as a number: dates as seconds since 1970 by their own clock, missing cells as NaN. */
function number(cell) {
  if (cell === null || cell === undefined || cell === "") return NaN;
  if (typeof cell !== "string") return Number(cell);
  const plain = Number(cell);
  return Number.isNaN(plain) ? Date.parse(`${cell.trim().replace(" ", "T")}Z`) / 1000 : plain;
}

/** One tensor per input of the model, which are the columns of the table. */
function feeds(session, rows) {
  const tensors = session.inputMetadata.map(({ name, type }) => {
    const cells = rows.map((row) => row[name]);
    const values =
      type === "string" ? cells.map((cell) => String(cell ?? "")) : Float64Array.from(cells, (cell) => number(cell));
    return [name, new ort.Tensor(type, values, [rows.length])];
  });
  return Object.fromEntries(tensors);
}

const [file, table] = process.argv.slice(2);
if (table === undefined) {
  console.error("Usage: node predict.mjs model.onnx rows.json");
  process.exit(2);
}
const session = await ort.InferenceSession.create(file);
const rows = JSON.parse(await readFile(table, "utf8"));
const outputs = await session.run(feeds(session, rows));
rows.forEach((_, i) => {
  const found = Object.entries(outputs).map(([name, { data, dims }]) => {
    const width = dims.length > 1 ? dims[1] : 1;
    return [name, dims.length > 1 ? Array.from(data.slice(i * width, (i + 1) * width)) : data[i]];
  });
  console.log(JSON.stringify(Object.fromEntries(found)));
});
