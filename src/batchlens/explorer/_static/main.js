// One page: a state, what has been answered about it, and figures.
//
// A change is answered twice. At once with curves followed from the last ones (about right, in a few hundredths of a
// second; while one such question is out, only the newest change waits), then exactly. A newer change drops what was
// asked for an older one.

import { ask, openFile, Refusal } from "./answers.js";
import { makeControls, showControls, showError, showInitialRisk, showSizes } from "./controls.js";
import { listenForCopies, showPoint } from "./copying.js";
import { byId, forgetWidths, html } from "./dom.js";
import { drawSchedule, drawSetting, drawSteps } from "./figures.js";
import { drawSpectrum, drawTraining, showMoment } from "./spectrum.js";
import { questionOf, readState, writeState } from "./state.js";
import { curveName, nearOne, sentenceOf, short, whole } from "./words.js";

const REST = 100; // milliseconds without a change before curves are refined
const facts = JSON.parse(byId("facts").textContent);
const known = new Map(facts.files.map((file) => [file.file, file]));
const defaults = firstState();
const state = readState(location.hash, defaults);
const remembered = new Map();

let turn = 0; // counts changes
let asking = false; // whether a quick question is out
let slow = null; // what aborts the exact questions
let shown = null; // { question, key, curves, problem, exact }: what the figures show
let risk = null;
let schedule = null;
let moment = null;
let drawnSteps = null;

function firstState() {
  const first = {};
  const problem = facts.files.find((file) => file.problem);
  if (problem) Object.assign(first, fileState(problem));
  first.overlay = facts.files.filter((file) => file.curves.length).map(({ file }) => file).join(",");
  if (facts.stored) {
    const { targets, optimizers, powers, batch_sizes: sizes } = facts.stored;
    const curve = `${optimizers.includes("momentum") ? "momentum" : optimizers[0]} ${powers[0]}`;
    Object.assign(first, { target: `${targets[Math.min(1, targets.length - 1)]}`, optimizer: optimizers.join(","),
      power: powers.join(","), batch_sizes: sizes, curve });
  }
  return first;
}

/** What changes where a file's problem is looked at: its own target, and bins that keep the trace. */
function fileState({ file, problem }) {
  return { file, rounding: "mean", target: `${+(problem.initial_risk / 100).toPrecision(2)}` };
}

function changed() {
  turn += 1;
  slow?.abort();
  slow = null;
  showControls(state, stops, known.get(state.file));
  document.body.dataset.state = "moving";
  if (!asking) follow();
}

/** Answers the newest change at once, and again while there is a newer one; then exactly. */
async function follow() {
  asking = true;
  let mine = -1;
  while (mine !== turn) {
    mine = turn;
    const question = questionOf(state);
    const key = JSON.stringify(question);
    try {
      if (shown?.key !== key) {
        const kept = remembered.get(key);
        if (kept) show(question, key, kept);
        else if (shown) show(question, key, await ask("steps", { ...question, near: shown.curves }, mine));
        else show(question, key, await ask("steps", question, mine));
      } else showCurves();
      showError("");
      drawn(mine, "curves");
      await lookAtTraining(mine);
      drawn(mine, "training");
    } catch (error) {
      if (!fail(error) && mine === turn) {
        asking = false;
        document.body.dataset.state = "failed";
        return;
      }
    }
  }
  asking = false;
  settle(mine);
}

/** Exact curves, then the best schedule. */
async function settle(mine) {
  const abort = new AbortController();
  slow = abort;
  const { question, key } = shown;
  try {
    if (!shown.exact) {
      byId("status").textContent = "Refining";
      await rest(); // on one core the server would keep the browser from its frame
      if (mine !== turn) return;
      const answer = await ask("steps", question, mine, abort.signal);
      if (mine !== turn) return;
      show(question, key, answer);
      drawn(mine, "exact");
      await lookAtTraining(mine, abort.signal);
    }
    byId("status").textContent = "Exact";
    remember(key, { curves: shown.curves, problem: shown.problem, exact: true });
    history.replaceState(null, "", writeState(state, defaults));
    const { curve, point } = chosen();
    schedule = point.steps
      ? await ask("schedule", { ...question, batch_size: point.batch_size, power: curve.power }, mine, abort.signal)
      : null;
    if (mine !== turn) return;
    showSchedule();
    document.body.dataset.state = "settled";
  } catch (error) {
    if (!fail(error) && mine === turn) document.body.dataset.state = "failed";
  }
}

function remember(key, answer) {
  remembered.delete(key);
  remembered.set(key, answer);
  if (remembered.size > 200) remembered.delete(remembered.keys().next().value);
}

/** Shows a refusal; says whether it was only that something newer has been asked. */
function fail(error) {
  if (!(error instanceof Refusal)) throw error;
  if (!error.superseded) {
    showError(error.message);
    byId("status").textContent = "";
  }
  return error.superseded;
}

/** Tells whoever measures how long things take that a change is on the screen. */
function drawn(mine, what) {
  document.dispatchEvent(new CustomEvent("batchlens:drawn", { detail: { turn: mine, what } }));
}

/** A moment after what has been drawn is on the screen. */
function rest() {
  return new Promise((resolve) => {
    const frame = document.hidden ? setTimeout : requestAnimationFrame;
    frame(() => setTimeout(resolve, REST));
  });
}

/** The chosen curve and point: those of the state, or the nearest that there are. */
function chosen() {
  const { curves } = shown;
  const curve = curves.find((each) => `${each.optimizer} ${each.power}` === state.curve)
    ?? curves.find((each) => each.optimizer === state.curve.split(" ")[0]) ?? curves[0];
  const near = (point) => Math.abs(Math.log(point.batch_size / (+state.batch_size || 256)));
  const point = curve.points.reduce((best, each) => (near(each) < near(best) ? each : best));
  return { curve, point };
}

function show(question, key, answer) {
  shown = { question, key, ...answer };
  showInitialRisk(answer.problem.initial_risk);
  showCurves();
  showTable();
}

function showCurves() {
  const { curves, question, exact } = shown;
  const { curve, point } = chosen();
  const size = point.batch_size;
  const overlays = overlayFiles();
  drawnSteps = drawSteps(byId("steps"), curves, curve, size, overlays, short(+question.target));
  drawSetting(byId("rates"), curves, "learning_rate", size);
  for (const [name, figure, has] of [["momentum", "momenta", /momentum|nesterov/], ["averaging", "averagings", /ema/]]) {
    const those = curves.filter(({ optimizer }) => has.test(optimizer));
    byId(`${figure}-figure`).hidden = !those.length;
    if (those.length) drawSetting(byId(figure), those, name, size, true);
  }
  byId("sentence").textContent = sentenceOf(curves, curve, point, short(+question.target));
  showPoint(question, curve, point, known.get(question.problem.file), exact);
  showSizes(curve.points.map((each) => each.batch_size), size);
}

/** What happens in the training of the chosen point. */
async function lookAtTraining(mine, signal) {
  const { curve, point } = chosen();
  if (shown.about !== point) {
    if (!point.steps) {
      risk = null;
    } else {
      const { problem, target } = shown.question;
      const { optimizer, power } = curve;
      risk = await ask("risk", { problem, target, optimizer, power, ...point }, mine, signal);
    }
    shown.about = point;
  }
  showTraining(true);
}

function showTraining(anew = false) {
  const { point } = chosen();
  byId("training").parentElement.classList.toggle("nothing", !risk);
  if (!risk) {
    byId("moment-words").textContent = "There is no training to show: the target is beyond reach, or met at the start.";
    return;
  }
  const end = risk.steps.findIndex((step) => step >= point.steps);
  if (anew || moment === null) moment = Math.max(end, 0);
  Object.assign(byId("moment"), { max: risk.steps.length - 1, value: moment });
  drawTraining(byId("training"), risk, point.steps, +shown.question.target, moment);
  drawSpectrum(byId("spectrum"), risk, moment);
  showMoment(risk, moment);
}

function showSchedule() {
  const { curves } = shown;
  const { curve, point } = chosen();
  byId("schedule-figure").hidden = !schedule?.lengths.length;
  if (byId("schedule-figure").hidden) return;
  const plain = curves.find((each) => each.optimizer === "sgd" && each.power === curve.power);
  const constant = plain?.points.find((each) => each.batch_size === point.batch_size);
  drawSchedule(byId("schedule"), schedule, constant?.learning_rate);
  const saved = constant?.steps ? `, ${Math.round(100 * (1 - schedule.steps / constant.steps))}% fewer than the best `
    + "constant rate" : "";
  byId("schedule-words").textContent = `SGD${curve.power ? ` with power ${short(curve.power)}` : ""} at batch size `
    + `${whole(point.batch_size)}: ${whole(schedule.steps)} steps${saved}.`;
}

function showTable() {
  const rows = shown.curves.flatMap((curve) => curve.points.map((point) => [curve.optimizer, short(curve.power),
    whole(point.batch_size), point.steps === null ? "not reached" : whole(point.steps),
    point.learning_rate === null ? "" : short(point.learning_rate), point.momentum ? nearOne(point.momentum) : "",
    point.averaging ? nearOne(point.averaging) : ""]));
  byId("rows").replaceChildren(...rows.map((cells) => html("tr", {}, ...cells.map((cell, i) =>
    html(i ? "td" : "th", i ? { textContent: cell } : { textContent: cell, scope: "row" })))));
}

/** All numbers in full, as a CSV. */
function csv() {
  const names = ["batch_size", "steps", "learning_rate", "momentum", "averaging", "status"];
  const rows = shown.curves.flatMap((curve) => curve.points.map((point) =>
    [curve.optimizer, curve.power, ...names.map((name) => point[name] ?? "")].join(",")));
  return [["optimizer", "power", ...names].join(","), ...rows, ""].join("\n");
}

// What people do beside the controls.

function overlayFiles() {
  return state.overlay.split(",").map((digest) => known.get(digest)).filter(Boolean);
}

function showOverlays() {
  byId("overlay-list").replaceChildren(...overlayFiles().map(({ name, file }) => {
    const button = html("button", { type: "button", textContent: "Remove", ariaLabel: `Remove ${name}` });
    button.addEventListener("click", () => {
      state.overlay = state.overlay.split(",").filter((digest) => digest !== file).join(",");
      showOverlays();
      changed();
    });
    return html("li", {}, html("span", { textContent: name }), button);
  }));
}

async function choose(input, use) {
  const [file] = input.files;
  input.value = "";
  if (!file) return;
  try {
    const found = await openFile(file, turn);
    known.set(found.file, found);
    showError("");
    use(found);
  } catch (error) {
    fail(error);
  }
}

function useProblem(found) {
  if (!found.problem) {
    showError(`${found.name} has no spectrum, only curves.`);
    return;
  }
  Object.assign(state, fileState(found));
  if (found.curves.length) useOverlay(found);
  else changed();
}

function useOverlay(found) {
  if (!found.curves.length) {
    showError(`${found.name} has no curves to lay over the theory.`);
    return;
  }
  state.overlay = [...new Set([...state.overlay.split(",").filter(Boolean), found.file])].join(",");
  showOverlays();
  changed();
}

byId("problem-file").addEventListener("change", (event) => choose(event.target, useProblem));
byId("overlay-file").addEventListener("change", (event) => choose(event.target, useOverlay));
for (const radio of document.querySelectorAll('input[name="kind"]')) {
  radio.addEventListener("change", () => {
    const file = [...known.values()].find((each) => each.problem);
    if (radio.value === "file" && file) Object.assign(state, fileState(file));
    else if (radio.value === "power_law" && state.file) Object.assign(state, { file: "", rounding: "down", target: "0.01" });
    else {
      byId("from-file").hidden = radio.value !== "file";
      byId("power-law").hidden = radio.value === "file";
      return;
    }
    changed();
  });
}

byId("batch_size-slider").addEventListener("input", (event) => {
  const { curve } = chosen();
  state.batch_size = `${curve.points[event.target.value].batch_size}`;
  changed();
});

byId("steps").addEventListener("click", (event) => {
  const box = byId("steps").getBoundingClientRect();
  const [x, y] = [event.clientX - box.left, event.clientY - box.top];
  let best = null;
  for (const curve of shown.curves) {
    for (const point of curve.points) {
      if (!point.steps) continue;
      const far = Math.hypot(drawnSteps.scales.x(point.batch_size) - x, drawnSteps.scales.y(point.steps) - y);
      if (far < (best?.far ?? 60)) best = { far, curve, point };
    }
  }
  if (best) pick(best.curve, best.point.batch_size);
});

byId("steps").addEventListener("keydown", (event) => {
  const { curve, point } = chosen();
  const { curves } = shown;
  const along = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
  const across = { ArrowUp: -1, ArrowDown: 1 }[event.key];
  if (!along && !across) return;
  event.preventDefault();
  const next = curve.points[curve.points.indexOf(point) + (along ?? 0)] ?? point;
  pick(curves.at((curves.indexOf(curve) + (across ?? 0)) % curves.length), next.batch_size);
});

function pick(curve, size) {
  Object.assign(state, { curve: `${curve.optimizer} ${curve.power}`, batch_size: `${size}` });
  changed();
}

byId("moment").addEventListener("input", (event) => {
  moment = +event.target.value;
  showTraining();
});

byId("csv").addEventListener("click", () => {
  byId("csv").href = `data:text/csv;charset=utf-8,${encodeURIComponent(csv())}`;
});

addEventListener("hashchange", () => {
  Object.assign(state, readState(location.hash, defaults));
  findFiles().then(() => changed());
});

/** Files that the address names and this page does not know yet. */
async function findFiles() {
  for (const digest of [state.file, ...state.overlay.split(",")]) {
    if (!digest || known.has(digest)) continue;
    try {
      known.set(digest, await ask("file", { file: digest }, turn));
    } catch (error) {
      fail(error);
      if (digest === state.file) state.file = "";
    }
  }
  showOverlays();
}

function redraw() {
  if (!shown) return;
  showCurves();
  if (risk) showTraining();
  if (schedule) showSchedule();
}

const stops = makeControls(state, facts.stored, changed);
listenForCopies();
byId("version").textContent = facts.version;
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
const resized = new ResizeObserver(() => {
  forgetWidths();
  redraw();
});
for (const chart of document.querySelectorAll("figure svg")) resized.observe(chart);
findFiles().then(() => changed());
