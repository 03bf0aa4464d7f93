// The figures of curves: steps with critical batch sizes, best settings, the best schedule.

import { around, binaryTicks, drawChart, spread } from "./chart.js";
import { byId, html, svg, widthOf } from "./dom.js";
import { FAMILIES } from "./state.js";
import { criticalWords, curveName, nearOne, short, whole } from "./words.js";

const NARROW = 560;

/** Classes of a curve: its colour by optimizer, its stroke by power. */
export function lookOf(curve, curves) {
  const powers = [...new Set(curves.map(({ power }) => power))];
  return `${colourOf(curve.optimizer)} stroke-${powers.indexOf(curve.power) % 4}`;
}

/** The class of an optimizer's colour; those that the theory does not tune are grey. */
export function colourOf(optimizer) {
  return FAMILIES.includes(optimizer) ? `c-${optimizer.replace("+", "-")}` : "c-other";
}

/** Steps against batch size, with critical batch sizes, what is chosen and what was measured. */
export function drawSteps(element, curves, chosen, size, overlays, target) {
  const lines = curves.map((curve) => ({
    points: curve.points.map((point) => [point.batch_size, point.steps || null]),
    look: lookOf(curve, curves) + (curve === chosen ? " chosen" : ""),
    label: curveName(curve),
    dots: 3.2,
    titles: curve.points.map((point) => `${curveName(curve)}: ${whole(point.steps ?? 0)} steps at ${whole(point.batch_size)}`),
  }));
  const wide = widthOf(element) >= NARROW;
  const measured = overlays.flatMap((overlay) => overlay.curves);
  const points = [...lines.flatMap((line) => line.points),
    ...measured.flatMap((curve) => curve.points.map((point) => [point.batch_size, point.steps]))];
  const x = { ...around(points.map(([at]) => at), 1.6), ticks: binaryTicks, label: "batch size", format: whole };
  const y = around(points.map(([, steps]) => steps), 1.6);
  const labels = [...lines.map(({ label }) => label), ...measured.map(({ optimizer }) => optimizer)];
  const right = wide ? 40 + 7.2 * Math.max(...labels.map((label) => label.length)) : 12;
  const drawn = drawChart(element, { x, y, lines, height: wide ? 420 : 320, right,
    rules: [{ x: size, look: "here" }] });
  element.append(...criticalMarks(curves, drawn), ...measuredMarks(measured, drawn, wide));
  const point = chosen?.points.find((entry) => entry.batch_size === size);
  if (point?.steps) {
    element.append(svg("circle", { class: `ring ${colourOf(chosen.optimizer)}`, r: 7,
      cx: drawn.scales.x(size), cy: drawn.scales.y(point.steps) }));
  }
  element.setAttribute("aria-label", `Steps to ${target} against batch size. ` + curves.map((curve) =>
    `${curveName(curve)}: critical batch size ${criticalWords(curve.critical_batch_size)}`).join("; "));
  byId("legend").hidden = wide;
  byId("legend").replaceChildren(...wide ? [] : [
    ...lines.map(({ look, label }) => legendEntry(`line ${look}`, "M0 5h26", label)),
    ...measured.map(({ optimizer }) => legendEntry(`measured ${colourOf(optimizer)}`, "M13 0l5 5l-5 5l-5 -5z",
      `${optimizer || "runs"}, measured`))]);
  return drawn;
}

function legendEntry(look, shape, label) {
  const sample = svg("svg", { width: 26, height: 10, class: look }, svg("path", { d: shape }));
  return html("span", {}, sample, ` ${label}`);
}

/** A dashed line from each curve down to its critical batch size; labels in rows where they would overlap. */
function criticalMarks(curves, { frame, scales }) {
  const rows = [];
  const known = curves.filter(({ critical_batch_size: found }) => found.value);
  known.sort((a, b) => a.critical_batch_size.value - b.critical_batch_size.value);
  const labels = [];
  const drops = known.map((curve) => {
    const found = curve.critical_batch_size;
    const at = Math.min(Math.max(scales.x(found.value), frame.left), frame.right);
    const text = criticalWords(found).replace("at least ", "≥ ").replace("at most ", "≤ ");
    const half = 3.7 * text.length + 5;
    const centre = Math.min(Math.max(at, frame.left + half), frame.right - half);
    let row = rows.findIndex((end) => end < centre - half);
    if (row < 0) row = rows.length;
    rows[row] = centre + half;
    const y = frame.bottom - 7 - 17 * row;
    const look = `critical ${colourOf(curve.optimizer)}`;
    labels.push(svg("g", { class: look },
      svg("rect", { x: centre - half, y: y - 12, width: 2 * half, height: 16, rx: 8 }),
      svg("text", { x: centre, y, "text-anchor": "middle" }, text)));
    return svg("g", { class: look },
      svg("path", { d: `M${at} ${frame.bottom}V${scales.y(stepsAt(curve, found.value))}` }));
  });
  return [...drops, ...labels];
}

/** Where a curve is at a batch size, between its points. */
function stepsAt(curve, size) {
  const known = curve.points.filter(({ steps }) => steps);
  const after = known.findIndex(({ batch_size: at }) => at >= size);
  if (after <= 0) return known[after === 0 ? 0 : known.length - 1].steps;
  const [a, b] = [known[after - 1], known[after]];
  const part = Math.log(size / a.batch_size) / Math.log(b.batch_size / a.batch_size);
  return a.steps * (b.steps / a.steps) ** part;
}

/** Measured points as diamonds, with intervals where they are known. */
function measuredMarks(measured, { frame, scales }, named) {
  const known = measured.map((curve) => ({ ...curve, points: curve.points.filter(({ steps }) => steps) }))
    .filter(({ points }) => points.length);
  const heights = spread(known.map(({ points }) => scales.y(points.at(-1).steps)), 16);
  return known.map(({ optimizer, points }, i) => {
    const name = `${optimizer || "runs"}, measured`;
    const group = svg("g", { class: `measured ${colourOf(optimizer)}` });
    for (const { batch_size: size, steps, interval } of points) {
      const [x, y] = [scales.x(size), scales.y(steps)];
      if (interval?.[0] && interval[1]) {
        group.append(svg("path", { d: `M${x} ${scales.y(interval[0])}V${scales.y(interval[1])}` }));
      }
      group.append(svg("path", { class: "mark", d: `M${x} ${y - 5}l5 5l-5 5l-5 -5z` },
        svg("title", {}, `${name}: ${whole(steps)} steps at ${whole(size)}`)));
    }
    const end = scales.x(points.at(-1).batch_size);
    const crowded = end + 12 + 7 * name.length > frame.right;
    if (named) group.append(svg("text", { x: end + (crowded ? -10 : 10), y: heights[i] + 4,
      "text-anchor": crowded ? "end" : "start" }, name));
    return group;
  });
}

/** One setting against batch size; `gap` draws its distance from 1. */
export function drawSetting(element, curves, name, size, gap = false) {
  const value = (point) => (point[name] === null || point[name] === undefined ? null
    : gap ? Math.max(1 - point[name], 1e-12) : point[name] || null);
  const lines = curves.map((curve) => ({
    points: curve.points.map((point) => [point.batch_size, point.steps ? value(point) : null]),
    look: lookOf(curve, curves),
    dots: 2.4,
  }));
  const x = { ...around(curves.flatMap(({ points }) => points.map((point) => point.batch_size)), 1.6),
    ticks: binaryTicks, label: "batch size", format: whole };
  const y = { ...around(lines.flatMap(({ points }) => points.map(([, at]) => at))) };
  if (gap) Object.assign(y, { max: Math.min(y.max, 1.6), flip: true, format: (at) => nearOne(1 - at) });
  drawChart(element, { x, y, lines, height: 240, rules: [{ x: size, look: "here" }] });
}

/** The learning rates of a schedule as a staircase, and the best constant rate beside it. */
export function drawSchedule(element, schedule, constant) {
  const points = [];
  let step = 0;
  schedule.lengths.forEach((length, i) => {
    const rate = schedule.learning_rates[i] || null;
    points.push([step, rate], [step + length, rate]);
    step += length;
  });
  const rates = schedule.learning_rates.filter((rate) => rate > 0);
  const top = Math.max(...rates, constant ?? 0);
  const y = { log: true, min: Math.max(Math.min(...rates), top * 1e-6) / 1.5, max: top * 1.6 };
  const rules = constant ? [{ y: constant, look: "constant", label: `best constant rate ${short(constant)}` }] : [];
  drawChart(element, { x: { min: 0, max: step || 1, label: "step" }, y,
    lines: [{ points: points.map(([at, rate]) => [at, rate && Math.max(rate, y.min)]), look: "c-schedule stroke-0" }],
    rules, height: 240 });
}
