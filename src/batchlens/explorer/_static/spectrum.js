// Where the risk is along training: its two parts, and which curvatures they come from.

import { around, drawChart, tickLabel } from "./chart.js";
import { byId, styled, svg, widthOf } from "./dom.js";
import { short, whole } from "./words.js";

const COLUMNS = 240;

/** Risk and its two parts against steps. */
export function drawTraining(element, risk, steps, target, moment) {
  const line = (name, look, label) => ({ points: risk.steps.map((step, i) => [step, risk[name][i] || null]), look, label });
  const wide = widthOf(element) >= 560;
  const top = Math.max(...risk.risk.filter(Number.isFinite));
  const y = around([...risk.risk, target], 1.5);
  y.min = Math.min(target / 8, top / 100);
  const lines = [line("risk", "c-risk stroke-0", "risk"), line("deterministic", "c-learning stroke-0", "still to learn"),
    line("noise", "c-noise stroke-0", "noise")];
  const x = { ...axis(risk), format: () => "" };
  drawChart(element, { x, y, lines, height: 180, right: wide ? 118 : 12, bottom: 10, rules: [
    { y: target, look: "target", label: `target ${short(target)}` },
    { x: steps, look: "end", label: `${whole(steps)} steps` },
    { x: risk.steps[moment], look: "here" }] });
}

/** Bands of curvature by steps: the colour says why there is risk, its strength how much of that step's risk it is. */
export function drawSpectrum(element, risk, moment) {
  const { curvature } = risk.spectrum;
  const wide = widthOf(element) >= 560;
  const bands = curvature.length;
  const marks = bandTicks(curvature);
  const { frame, scales } = drawChart(element, {
    x: { ...axis(risk), label: "step" },
    y: { min: 0, max: bands, flip: true, ticks: () => marks.map(([at]) => at),
      format: (at) => marks.find(([place]) => place === at)[1] },
    height: 300, right: wide ? 118 : 12,
  });
  const image = svg("image", { x: frame.left, y: frame.top, width: frame.right - frame.left,
    height: frame.bottom - frame.top, preserveAspectRatio: "none", href: paint(risk, bands) });
  const at = scales.x(risk.steps[moment]);
  element.append(image, svg("g", { class: "rule here" }, svg("line", { x1: at, x2: at, y1: frame.top, y2: frame.bottom })));
  if (wide) {
    element.append(svg("text", { class: "side", x: frame.right + 10, y: frame.top + 12 }, "steep directions"),
      svg("text", { class: "side", x: frame.right + 10, y: frame.bottom - 4 }, "flat directions"));
  }
  element.append(svg("text", { class: "name", "text-anchor": "middle",
    transform: `translate(13 ${(frame.top + frame.bottom) / 2}) rotate(-90)` }, "curvature"));
}

function axis(risk) {
  return { min: 1, max: Math.max(risk.steps.at(-1), 2), log: true };
}

/** Rows at which the curvature passes a power of ten, with their labels. */
function bandTicks(curvature) {
  const marks = [];
  for (let i = 0; i < curvature.length; i += 1) {
    const decade = Math.round(Math.log10(curvature[i]));
    const off = Math.abs(Math.log10(curvature[i]) - decade);
    const last = marks.at(-1);
    if (last?.[2] === decade) {
      if (off < last[3]) marks[marks.length - 1] = [i + 0.5, tickLabel(10 ** decade), decade, off];
    } else if (off < 0.2) marks.push([i + 0.5, tickLabel(10 ** decade), decade, off]);
  }
  return marks.length ? marks : [[0.5, short(curvature[0])]];
}

function paint(risk, bands) {
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [COLUMNS, bands];
  const context = canvas.getContext("2d");
  const pixels = context.createImageData(COLUMNS, bands);
  const [page, learning, noise] = ["--surface", "--learning", "--noise"].map((name) => rgb(styled(name)));
  const last = Math.log(Math.max(risk.steps.at(-1), 2));
  let at = 0;
  for (let column = 0; column < COLUMNS; column += 1) {
    const step = Math.exp((last * (column + 0.5)) / COLUMNS);
    while (at + 1 < risk.steps.length && Math.sqrt(risk.steps[at] * risk.steps[at + 1]) < step) at += 1;
    const [left, noisy] = [risk.spectrum.learning[at], risk.spectrum.noise[at]];
    const parts = left.map((part, i) => part + noisy[i]).sort((a, b) => a - b);
    const most = Math.max(1, parts[Math.floor(0.9 * (bands - 1))]); // a band that stands out does not dim the rest
    for (let band = 0; band < bands; band += 1) {
      const part = left[band] + noisy[band];
      const strength = Math.sqrt(Math.min(part / most, 1));
      const share = part ? noisy[band] / part : 0;
      for (let k = 0; k < 3; k += 1) {
        const colour = learning[k] * (1 - share) + noise[k] * share;
        pixels.data[4 * (band * COLUMNS + column) + k] = page[k] * (1 - strength) + colour * strength;
      }
      pixels.data[4 * (band * COLUMNS + column) + 3] = 255;
    }
  }
  context.putImageData(pixels, 0, 0);
  return canvas.toDataURL();
}

function rgb(hex) {
  return [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16));
}

/** What the picture shows at one moment, in a sentence. */
export function momentWords(risk, moment) {
  const { curvature, learning, noise } = risk.spectrum;
  const total = (parts) => parts.reduce((sum, part) => sum + part, 0);
  const [left, noisy] = [learning[moment], noise[moment]];
  const all = total(left) + total(noisy) || 1;
  const percent = (parts) => `${Math.round((100 * total(parts)) / all)}%`;
  const words = `After ${whole(risk.steps[moment])} steps the risk is ${short(risk.risk[moment] ?? Infinity)}: `
    + `${percent(left)} still to be learnt${where(left, curvature)}, ${percent(noisy)} noise${where(noisy, curvature)}.`;
  return words.replaceAll("e-", "e\u2011"); // not to be broken at the end of a line
}

/** The curvatures between which the middle half of some parts lies. */
function where(parts, curvature) {
  const total = parts.reduce((sum, part) => sum + part, 0);
  if (total < 200 || curvature.length < 4) return "";
  const at = (share) => {
    let sum = 0;
    return curvature[parts.findIndex((part) => (sum += part) >= share * total)];
  };
  const [high, low] = [at(0.25), at(0.75)];
  return high === low ? ` (around curvature ${short(high)})` : ` (half of it at curvatures ${short(low)} to ${short(high)})`;
}

/** Shows a moment of the training. */
export function showMoment(risk, moment) {
  byId("moment-step").textContent = `step ${whole(risk.steps[moment])}`;
  byId("moment-words").textContent = momentWords(risk, moment);
}
