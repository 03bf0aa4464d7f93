// The controls: fields and sliders of one state. A slider stops at round values; a field takes any.

import { byId, html } from "./dom.js";
import { colourOf } from "./figures.js";
import { FAMILIES } from "./state.js";
import { short, whole } from "./words.js";

const POWERS = [["0", "none"], ["0.5", "as Adam"], ["1", "as K-FAC"]];
const evenly = (first, last, step) => Array.from({ length: Math.round((last - first) / step) + 1 },
  (_, i) => Number((first + i * step).toFixed(10)));
const decades = (first, last, digits) => evenly(first, last, 1).flatMap((k) => digits.map((d) => +`${d}e${k}`));
const TENTHS = [1, 1.3, 1.6, 2, 2.5, 3.2, 4, 5, 6.3, 7.9];

const STOPS = {
  exponent: evenly(0, 3, 0.02),
  dim: [...decades(1, 4, [1, 1.5, 2, 3, 5, 7]), 100000],
  target: [...decades(-4, 0, TENTHS)],
  own_power: evenly(0, 1, 0.02),
};

/** Lays out the controls and calls `changed` after what a person does; returns where the sliders stop. */
export function makeControls(state, stored, changed) {
  const stops = stored ? storedStops(stored) : STOPS;
  const set = (values) => {
    Object.assign(state, values);
    changed();
  };
  for (const name of Object.keys(stops)) makeDial(name, stops[name], set, Boolean(stored));
  makeChecks("optimizers", (stored?.optimizers ?? FAMILIES).map((name) => [name, name]), "optimizer", state, set);
  makeChecks("powers", stored ? stored.powers.map((power) => [`${power}`, ""]) : POWERS, "power", state, set);
  for (const name of ["bins", "rounding", "batch_sizes"]) {
    byId(name).addEventListener("change", () => set({ [name]: byId(name).value.trim() }));
  }
  if (stored) hideUseless(stored);
  byId("controls").addEventListener("submit", (event) => event.preventDefault());
  return stops;
}

function storedStops({ problems, targets }) {
  const exponents = problems.map(({ exponent }) => exponent).filter((value) => value !== undefined);
  return { ...exponents.length ? { exponent: exponents } : {}, target: targets };
}

/** An exported page keeps the controls that it has answers for. */
function hideUseless({ problems }) {
  const useless = ["kinds", "bins-details", "own-power", "sizes-row", "from-file"];
  if (problems[0].file) useless.push("power-law");
  for (const id of useless) byId(id).hidden = true;
  document.querySelector('.dial[data-name="dim"]').hidden = true;
  byId("overlays").hidden = true;
}

function makeDial(name, stops, set, onlyStops) {
  const [field, slider] = [byId(name), byId(`${name}-slider`)];
  Object.assign(slider, { min: 0, max: stops.length - 1, step: 1 });
  field.readOnly = onlyStops;
  slider.addEventListener("input", () => set({ [name]: String(stops[slider.value]) }));
  field.addEventListener("change", () => set({ [name]: field.value.trim() }));
}

function makeChecks(id, choices, name, state, set) {
  byId(id).replaceChildren(...choices.map(([value, note]) => {
    const box = html("input", { type: "checkbox", value });
    box.addEventListener("change", () => {
      const ticked = [...byId(id).querySelectorAll("input:checked")].map((each) => each.value);
      if (!ticked.length && !(name === "power" && state.own_power)) box.checked = true;
      else set({ [name]: ticked.join(",") });
    });
    const label = html("label", {}, box, ` ${value}`);
    if (name === "optimizer") label.className = colourOf(value);
    else if (note) label.append(html("small", { textContent: ` ${note}` }));
    return label;
  }));
}

/** Puts the state into the controls. */
export function showControls(state, stops, file) {
  for (const name in stops) {
    const [field, slider] = [byId(name), byId(`${name}-slider`)];
    if (document.activeElement !== field) field.value = state[name];
    slider.value = state[name] === "" ? 0 : nearest(stops[name], +state[name]);
    slider.setAttribute("aria-valuetext", state[name] || "off");
  }
  for (const name of ["bins", "rounding", "batch_sizes"]) {
    if (document.activeElement !== byId(name)) byId(name).value = state[name];
  }
  for (const [id, name] of [["optimizers", "optimizer"], ["powers", "power"]]) {
    const ticked = state[name].split(",");
    for (const box of byId(id).querySelectorAll("input")) box.checked = ticked.includes(box.value);
  }
  const fromFile = Boolean(file);
  for (const radio of document.querySelectorAll('input[name="kind"]')) {
    radio.checked = (radio.value === "file") === fromFile;
  }
  byId("power-law").hidden = fromFile;
  byId("from-file").hidden = !fromFile;
  if (file) byId("problem-name").textContent = `${file.name}: ${file.problem.headline}`;
}

/** Lets the slider of the batch size stop where the curves have points. */
export function showSizes(sizes, size) {
  const slider = byId("batch_size-slider");
  Object.assign(slider, { min: 0, max: sizes.length - 1, step: 1, value: sizes.indexOf(size) });
  slider.setAttribute("aria-valuetext", whole(size));
  byId("batch_size").textContent = whole(size);
}

/** Says what is wrong, and marks the field that it is about. */
export function showError(message) {
  byId("error").hidden = !message;
  byId("error").textContent = message;
  const option = /--[a-z-]+/.exec(message)?.[0];
  for (const field of document.querySelectorAll("[data-option]")) {
    field.toggleAttribute("data-wrong", Boolean(option) && field.dataset.option === option);
    field.setAttribute("aria-invalid", String(Boolean(option) && field.dataset.option === option));
  }
}

/** What risk there is before the first step. */
export function showInitialRisk(risk) {
  byId("initial-risk").textContent = `from ${short(risk)} at the start`;
}

function nearest(stops, value) {
  const far = (stop) => Math.abs(stop > 0 && value > 0 ? Math.log(stop / value) : stop - value);
  return stops.reduce((best, stop, i) => (far(stop) < far(stops[best]) ? i : best), 0);
}
