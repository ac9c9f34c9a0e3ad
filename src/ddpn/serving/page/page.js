"use strict";

// State: what the server says about the model, the row of the form, and the number of the newest request.
const state = {about: null, row: {}, newest: 0, token: "", model: null};
const at = id => document.getElementById(id);
const SVG = "http://www.w3.org/2000/svg";

function element(name, attributes = {}, ...children) {
  const found = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) found.setAttribute(key, value);
  found.append(...children);
  return found;
}

function mark(name, attributes, words) {
  const found = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) found.setAttribute(key, value);
  if (words !== undefined) found.textContent = words;
  return found;
}

// Requests ---------------------------------------------------------------------------------------------------------

async function ask(path, body, signal) {
  const headers = {"Content-Type": "application/json"};
  if (state.token) headers.Authorization = `Bearer ${state.token}`;
  const options = body ? {method: "POST", body: JSON.stringify(body), headers, signal} : {headers, signal};
  const response = await fetch(path, options);
  const answer = await response.json();
  if (!response.ok) throw Object.assign(new Error(answer.message), {status: response.status, problems: answer.problems || []});
  return answer;
}

const path = end => `models/${encodeURIComponent(state.model)}${end}`;

// Numbers as text --------------------------------------------------------------------------------------------------

function short(value, digits = 3) {
  if (value === null || value === undefined) return "–";
  if (typeof value !== "number") return String(value);
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-3 || size >= 1e7)) return value.toExponential(2);
  const precision = size >= 10 ** digits ? {maximumFractionDigits: 0} : {maximumSignificantDigits: digits};
  return value.toLocaleString("en", {...precision, useGrouping: size >= 1e4});
}
const percent = share => `${short(100 * share)}%`;

function ticks(low, high, most = 6) {
  const span = Math.max(high - low, 1e-12);
  const raw = span / most, power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map(times => times * power).find(size => span / size <= most);
  const found = [];
  for (let value = Math.ceil(low / step) * step; value <= high + 1e-9 * span; value += step) found.push(Math.abs(value) < 1e-12 * span ? 0 : +value.toPrecision(12));
  return found;
}

// The form ---------------------------------------------------------------------------------------------------------

// Columns up to which the form is as long as it needs to be; a longer one scrolls.
const MOST_FIELDS = 30;
const numeric = column => ["number", "exposure", "upper"].includes(column.kind);

function hint(column) {
  const role = {exposure: "exposure", upper: "largest possible count", group: "group"}[column.kind];
  const values = column.range ? column.range.map(value => short(value)) : column.days;
  return [role, values && values.join(" to ")].filter(Boolean).join(", ");
}

function field(column, index) {
  const id = `column-${index}`;
  const box = element("div", {class: "field", "data-column": column.name},
    element("label", {for: id}, column.name), element("span", {class: "hint", id: `${id}-hint`}, hint(column)));
  const change = value => { state.row[column.name] = value; update(); };
  if (numeric(column)) box.append(...numberInputs(column, id, change));
  else if (column.kind === "date") {
    const input = element("input", {id, type: "date", "aria-describedby": `${id}-hint`});
    input.value = (state.row[column.name] || "").slice(0, 10);
    input.addEventListener("input", () => change(input.value || null));
    box.append(input);
  } else if (column.kind === "boolean") {
    box.append(choice(id, [["no", false], ["yes", true], ["missing", null]], state.row[column.name], change));
  } else box.append(...levelInputs(column, id, change));
  return box;
}

function numberInputs(column, id, change) {
  const input = element("input", {id, type: "number", step: "any", "aria-describedby": `${id}-hint`, inputmode: "decimal"});
  if (column.kind === "number") input.placeholder = "missing";
  const value = state.row[column.name];
  input.value = value === null ? "" : value;
  const parts = [input];
  let slider = null;
  if (column.range && column.range[0] < column.range[1]) {
    const [low, high] = column.range;
    slider = element("input", {type: "range", min: low, max: high, step: column.integers ? 1 : (high - low) / 200, "aria-label": `${column.name}, slider`});
    slider.value = value ?? low;
    slider.addEventListener("input", () => {
      input.value = column.integers ? Math.round(slider.value) : +(+slider.value).toPrecision(4);
      change(+input.value);
    });
    parts.push(slider);
  }
  input.addEventListener("input", () => {
    const given = input.value === "" ? null : +input.value;
    if (slider && given !== null) slider.value = given;
    change(Number.isNaN(given) ? null : given);
  });
  return parts;
}

function choice(id, options, now, change) {
  const select = element("select", {id, "aria-describedby": `${id}-hint`});
  options.forEach(([words, value], i) => {
    const option = element("option", {value: i}, words);
    option.selected = value === now;
    select.append(option);
  });
  select.addEventListener("input", () => change(options[+select.value][1]));
  return select;
}

function levelInputs(column, id, change) {
  const levels = (column.levels || []).map(level => [level, level]);
  const other = element("input", {type: "text", "aria-label": `${column.name}, another value`, placeholder: "another value"});
  other.hidden = true;
  other.addEventListener("input", () => change(other.value));
  const OTHER = {};
  const select = choice(id, [...levels, ["missing", null], ["another value …", OTHER]], state.row[column.name], value => {
    other.hidden = value !== OTHER;
    if (value === OTHER) { other.focus(); change(other.value); } else change(value);
  });
  return [select, other];
}

function buildForm() {
  state.row = {...state.about.example};
  at("fields").replaceChildren(...state.about.columns.map(field));
  at("search").hidden = state.about.columns.length <= 12;
  at("fields").classList.toggle("many", state.about.columns.length > MOST_FIELDS);
}

function showProblems(problems) {
  for (const box of document.querySelectorAll(".field")) {
    const own = problems.find(problem => problem.column === box.dataset.column);
    box.classList.toggle("wrong", Boolean(own));
    box.querySelector(".why")?.remove();
    if (own) box.append(element("p", {class: "why", role: "alert"}, own.message.replace(/^rows\[0\]/, "The value ").replace(/\['.*?'\] /, "")));
  }
}

// Predictions ------------------------------------------------------------------------------------------------------

let running = null, later = null;
const OUTPUTS = ["mean", "median", "mode", "lower", "upper", "interval_probability", "aleatoric", "epistemic", "stddev", "ood", "ood_pvalue", "ood_reasons", "distribution", "members"];

function update() {
  clearTimeout(later);
  later = setTimeout(predict, 25);
}

async function predict() {
  running?.abort();
  running = new AbortController();
  const number = ++state.newest, rows = [{...state.row}], coverage = +at("coverage").value;
  at("result").classList.add("waiting");
  at("request").textContent = `curl ${location.origin}/${path("/predict")} -H 'Content-Type: application/json' -d '${JSON.stringify({rows}).replaceAll("'", "'\\''")}'`;
  try {
    const answer = await ask(path("/predict"), {rows, coverage, outputs: OUTPUTS}, running.signal);
    if (number !== state.newest) return;
    showProblems([]);
    at("problem").hidden = true;
    showPrediction(answer.predictions[0], answer.coverage);
    document.body.dataset.answered = number;
  } catch (error) {
    if (error.name === "AbortError" || number !== state.newest) return;
    report(error);
  } finally {
    if (number === state.newest) at("result").classList.remove("waiting");
  }
}

function report(error) {
  if (error.status === 401) { at("login").hidden = false; at("token").focus(); }
  showProblems(error.problems || []);
  at("problem").textContent = error.status === 401 && !state.token ? "" : error.message;
  at("problem").hidden = !at("problem").textContent;
}

function showPrediction(row, coverage) {
  const target = state.about.target || "counts";
  at("headline").textContent = `${short(row.mean)} ${target} expected; ${short(row.lower)} to ${short(row.upper)} with ${percent(row.interval_probability)} (at least ${percent(coverage)} asked)`;
  const flag = at("flag");
  flag.hidden = row.ood === undefined;
  flag.className = row.ood ? "care" : "good";
  const share = row.ood_pvalue === undefined ? "" : ` (p = ${short(row.ood_pvalue, 2)})`;
  flag.textContent = row.ood ? `Unlike the training data${share}: ${row.ood_reasons.join("; ")}.` : `Like the training data${share}.`;
  drawDistribution(row);
  const numbers = {Mean: row.mean, Median: row.median, Mode: row.mode, "Standard deviation": row.stddev, "Aleatoric variance": row.aleatoric, "Epistemic variance": row.epistemic};
  at("numbers").replaceChildren(...facts(numbers));
}

function facts(known) {
  return Object.entries(known).map(([name, value]) => element("div", {}, element("dt", {}, name), element("dd", {}, short(value))));
}

// Figures ----------------------------------------------------------------------------------------------------------

function points({first, step, pmf}) { return pmf.map((p, i) => [first + i * step, p]); }

// From where to where the axis runs: the mixture without 0.1% on either side, and the interval.
function reach(row) {
  const every = points(row.distribution), total = every.reduce((sum, [, p]) => sum + p, 0);
  let below = 0;
  const inside = every.filter(([, p]) => { const from = below; below += p; return below > .001 * total && from < .999 * total; });
  return [Math.min(inside[0][0], row.lower), Math.max(inside.at(-1)[0], row.upper)];
}

function drawDistribution(row) {
  const svg = at("distribution"), left = 52, right = 630, top = 12, floor = 232;
  const [least, largest] = reach(row), low = least - .5, high = largest + .5;
  const shown = each => points(each).filter(([count]) => count >= least && count <= largest);
  const every = [row.distribution, ...row.members.map(member => member.distribution)];
  const most = 1.06 * Math.max(...every.flatMap(each => shown(each).map(([, p]) => p)), 1e-9);
  const x = value => left + (right - left) * (value - low) / (high - low), y = p => floor - (floor - top) * p / most;
  const marks = [];
  for (const tick of ticks(0, most, 4)) {
    marks.push(mark("path", {d: `M${left} ${y(tick)}H${right}`, class: "grid"}), mark("text", {x: left - 6, y: y(tick) + 4, "text-anchor": "end", class: "tick"}, percent(tick)));
  }
  const {step} = row.distribution;
  for (const [count, p] of shown(row.distribution)) {
    const inside = count >= row.lower && count <= row.upper;
    const bar = mark("rect", {x: x(count - step / 2), width: Math.max(x(step) - x(0) - 1, .8), y: y(p), height: Math.max(floor - y(p), 0), class: inside ? "bar in" : "bar"});
    bar.append(mark("title", {}, `P(${count}) = ${percent(p)}`));
    marks.push(bar);
  }
  row.members.forEach((member, i) => {
    const line = shown(member.distribution).map(([count, p], j) => `${j ? "L" : "M"}${x(count).toFixed(1)} ${y(p).toFixed(1)}`).join("");
    if (row.members.length > 1) marks.push(mark("path", {d: line, class: `line m${i % 5}`}));
  });
  marks.push(mark("path", {d: `M${x(row.mean)} ${top}V${floor}`, class: "mean"}), mark("path", {d: `M${left} ${floor}H${right}`, class: "axis"}));
  for (const tick of ticks(low, high, 8).filter(Number.isInteger)) marks.push(mark("text", {x: x(tick), y: floor + 18, "text-anchor": "middle", class: "tick"}, short(tick)));
  marks.push(mark("text", {x: (left + right) / 2, y: 266, "text-anchor": "middle"}, state.about.target || "count"));
  svg.replaceChildren(...marks);
  svg.setAttribute("aria-label", `Predicted distribution: mean ${short(row.mean)}, interval ${short(row.lower)} to ${short(row.upper)}, ${percent(row.interval_probability)}`);
  showLegend(row);
}

function swatch(kind, shape) {
  const svg = mark("svg", {viewBox: "0 0 26 12", "aria-hidden": "true"});
  svg.append(mark(shape === "bar" ? "rect" : "path", shape === "bar" ? {x: 1, y: 1, width: 24, height: 10, class: kind} : {d: shape === "up" ? "M13 0V12" : "M1 6H25", class: kind}));
  return svg;
}

function showLegend(row) {
  const entries = [["bar in", "bar", "mixture, inside the interval"], ["bar", "bar", "outside"], ["mean", "up", "mean"]];
  if (row.members.length > 1) row.members.forEach((member, i) => entries.push([`line m${i % 5}`, "line", `${member.label}, weight ${percent(member.weight)}, mean ${short(member.mean)}`]));
  at("legend").replaceChildren(...entries.map(([kind, shape, words]) => element("li", {}, swatch(kind, shape), words)));
}

// About the model ---------------------------------------------------------------------------------------------------------

function table(headings, rows, kind) {
  const head = element("tr", {}, ...headings.map(words => element("th", {scope: "col"}, words)));
  const body = rows.map(row => element("tr", {}, ...row.map(words => element("td", {}, words))));
  return element("div", {class: "scroll", tabindex: 0}, element("table", {class: kind || ""}, element("thead", {}, head), element("tbody", {}, ...body)));
}

const list = sentences => element("ul", {}, ...sentences.map(words => element("li", {}, words)));

function showAbout() {
  const about = state.about, scores = about.scores;
  document.title = `${about.name}: ${about.target || "counts"}`;
  at("title").textContent = about.target ? `Predicts ${about.target}` : `Model ${about.name}`;
  at("under").textContent = [about.name, `version ${about.version}`, about.fitted ? `fitted on ${about.fitted.slice(0, 10)}` : "", `ddpn ${about.ddpn}`].filter(Boolean).join(" · ");
  const best = scores?.entries.find(entry => entry.name === "mixture");
  const known = {Target: about.target, Exposure: about.exposure, "Training rows": about.rows, Columns: about.columns.length};
  if (best) Object.assign(known, {[scores.scored_on === "test rows" ? "Test rows" : "Out-of-fold rows"]: scores.rows, CRPS: best.crps, "Mean absolute error": best.mae, [`Coverage of ${percent(scores.coverage)} intervals`]: `${percent(best.coverage)} (expected ${percent(best.expected)})`});
  at("facts").replaceChildren(...facts(Object.fromEntries(Object.entries(known).filter(([, value]) => value !== null && value !== undefined))));
  const parts = [];
  if (about.warnings.length) parts.push(element("div", {class: "warnings care"}, element("strong", {}, "Warnings"), list(about.warnings)));
  if (scores) {
    parts.push(element("h3", {}, scores.title), element("p", {class: "muted"}, scores.verdict?.sentences.join(" ") || ""));
    parts.push(table(["model", "weight", "CRPS", "NLL", "MAE", "coverage", "width"], scores.entries.map(entry =>
      [entry.label, entry.weight ? percent(entry.weight) : "–", short(entry.crps), short(entry.nll), short(entry.mae), percent(entry.coverage), short(entry.width)])));
  }
  parts.push(element("h3", {}, "Calibration"), list(about.calibration), element("h3", {}, "Limits"), list(about.limits), element("h3", {}, "Columns"));
  parts.push(table(["column", "kind", "training values"], about.columns.map(column =>
    [column.name, column.kind, hint(column) || (column.kind === "boolean" ? "no, yes" : (column.levels || []).slice(0, 8).join(", "))]), "words"));
  at("about").replaceChildren(...parts);
}

// Start ------------------------------------------------------------------------------------------------------------

async function choose(name) {
  state.model = name;
  state.about = await ask(path(""));
  showAbout();
  buildForm();
  at("main").hidden = false;
  await predict();
}

async function start() {
  at("problem").hidden = at("login").hidden = true;
  try {
    const {models} = await ask("models");
    at("models").replaceChildren(...models.map(model => element("option", {value: model.name}, model.name)));
    at("chooser").hidden = models.length < 2;
    await choose(models[0].name);
  } catch (error) {
    at("title").textContent = error.status === 401 ? "Token needed" : "The model cannot be shown";
    report(error);
  }
}

at("models").addEventListener("input", event => choose(event.target.value).catch(report));
at("coverage").addEventListener("input", update);
at("reset").addEventListener("click", () => { buildForm(); update(); });
at("form").addEventListener("submit", event => event.preventDefault());
at("filter").addEventListener("input", event => {
  const words = event.target.value.toLowerCase();
  for (const box of document.querySelectorAll(".field")) box.hidden = !box.dataset.column.toLowerCase().includes(words);
});
at("login").addEventListener("submit", event => {
  event.preventDefault();
  state.token = at("token").value.trim();
  start();
});
start();
