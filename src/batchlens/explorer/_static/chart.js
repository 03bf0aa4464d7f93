// Charts in SVG: axes, lines, marks. Drawn anew from data each time; colours and fonts come from the style sheet.

import { svg, widthOf } from "./dom.js";
import { short, whole } from "./words.js";

const SUPERSCRIPTS = "⁰¹²³⁴⁵⁶⁷⁸⁹";

/** A scale from values to pixels: { min, max, log, flip, ticks, format } between two ends. */
function makeScale(axis, from, to) {
  const map = axis.log ? Math.log : (value) => value;
  const low = map(axis.min);
  const span = map(axis.max) - low || 1;
  const [start, end] = axis.flip ? [to, from] : [from, to];
  return (value) => start + ((end - start) * (map(value) - low)) / span;
}

/** Round values between two ends of a logarithmic axis, `most` at the most. */
export function logTicks(min, max, most) {
  const first = Math.ceil(Math.log10(min) - 1e-9);
  const last = Math.floor(Math.log10(max) + 1e-9);
  const decades = last - first + 1;
  if (decades >= 3 || most < 4) {
    const stride = Math.max(1, Math.ceil(decades / most));
    return range(Math.ceil(first / stride) * stride, last, stride).map((k) => 10 ** k);
  }
  const fine = range(first - 1, last, 1).flatMap((k) => [1, 2, 5].map((m) => m * 10 ** k));
  const inside = fine.filter((value) => value >= min && value <= max);
  return inside.length >= 2 ? inside : linearTicks(min, max, most);
}

/** Powers of two between two ends, `most` at the most. */
export function binaryTicks(min, max, most) {
  const first = Math.ceil(Math.log2(min) - 1e-9);
  const last = Math.floor(Math.log2(max) + 1e-9);
  const stride = [1, 2, 4, 8, 16, 32, 64].find((step) => (last - first) / step < most) ?? 128;
  return range(Math.ceil(first / stride) * stride, last, stride).map((k) => 2 ** k);
}

/** Round values between two ends of a plain axis. */
export function linearTicks(min, max, most) {
  const rough = (max - min || 1) / most;
  const unit = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((m) => m * unit).find((size) => size >= rough);
  return range(Math.ceil(min / step), Math.floor(max / step), 1).map((k) => k * step);
}

function range(first, last, step) {
  return Array.from({ length: Math.max(0, Math.floor((last - first) / step) + 1) }, (_, i) => first + i * step);
}

/** A tick's label: 0.01, 10,000, 10⁷. */
export function tickLabel(value) {
  const decade = Math.log10(value);
  if (Number.isInteger(decade) && (decade > 5 || decade < -3)) {
    const digits = [...String(Math.abs(decade))].map((digit) => SUPERSCRIPTS[digit]).join("");
    return `10${decade < 0 ? "⁻" : ""}${digits}`;
  }
  return value >= 1 ? whole(value) : short(value);
}

/** Ends of a logarithmic axis around values, with room beside them. */
export function around(values, margin = 1.5, least = 0) {
  const shown = values.filter((value) => value > least && Number.isFinite(value));
  if (!shown.length) return { min: 0.1, max: 10, log: true };
  return { min: Math.min(...shown) / margin, max: Math.max(...shown) * margin, log: true };
}

/** Heights moved as little as it takes to lie `gap` apart. */
export function spread(heights, gap) {
  const order = heights.map((_, i) => i).sort((a, b) => heights[a] - heights[b]);
  const blocks = [];
  for (const i of order) {
    let block = { centre: heights[i], members: [i] };
    while (blocks.length) {
      const last = blocks.at(-1);
      const room = (gap * (last.members.length + block.members.length)) / 2;
      if (last.centre + room <= block.centre) break;
      blocks.pop();
      const [a, b] = [last.members.length, block.members.length];
      block = { centre: (last.centre * a + block.centre * b) / (a + b), members: [...last.members, ...block.members] };
    }
    blocks.push(block);
  }
  const placed = [...heights];
  for (const { centre, members } of blocks) {
    members.forEach((i, j) => { placed[i] = centre + gap * (j - (members.length - 1) / 2); });
  }
  return placed;
}

/**
 * Draws a chart and returns its scales and frame, for what is drawn on top.
 *
 * lines: { points: [[x, y]], look, label, dots, titles }; look is a class of the style sheet. rules: { x or y, look, label }.
 */
export function drawChart(element, { x, y, lines = [], rules = [], height, right, left = 58, top = 8, bottom = 42 }) {
  const width = widthOf(element) || 600;
  const frame = { left, top, right: width - (right ?? 12), bottom: height - bottom };
  const scales = { x: makeScale(x, frame.left, frame.right), y: makeScale(y, frame.bottom, frame.top) };
  element.setAttribute("viewBox", `0 0 ${width} ${height}`);
  element.setAttribute("height", height);
  const parts = [clip(element, frame), ...axisParts(x, y, frame, scales, height),
    ...rules.map((rule) => ruleParts(rule, frame, scales))];
  const drawn = svg("g", { "clip-path": `url(#${element.id}-frame)` });
  drawn.append(...lines.map((line) => lineParts(line, scales)));
  parts.push(drawn);
  if (right > 60) parts.push(...endLabels(lines, frame, scales));
  element.replaceChildren(...parts);
  return { frame, scales, width };
}

function clip({ id }, { left, right, top, bottom }) {
  return svg("clipPath", { id: `${id}-frame` },
    svg("rect", { x: left - 5, y: top - 5, width: Math.max(right - left, 0) + 10, height: bottom - top + 5 }));
}

function axisParts(x, y, frame, scales, height) {
  const room = { x: Math.max(2, (frame.right - frame.left) / 80), y: Math.max(2, (frame.bottom - frame.top) / 36) };
  const ticks = (axis, name) => axis.ticks?.(axis.min, axis.max, room[name])
    ?? (axis.log ? logTicks : linearTicks)(axis.min, axis.max, room[name]);
  const parts = [];
  for (const value of ticks(x, "x")) {
    const at = scales.x(value);
    parts.push(svg("line", { class: "grid", x1: at, x2: at, y1: frame.top, y2: frame.bottom }),
      svg("text", { class: "tick", x: at, y: frame.bottom + 16, "text-anchor": "middle" }, (x.format ?? tickLabel)(value)));
  }
  for (const value of ticks(y, "y")) {
    const at = scales.y(value);
    parts.push(svg("line", { class: "grid", x1: frame.left, x2: frame.right, y1: at, y2: at }),
      svg("text", { class: "tick", x: frame.left - 7, y: at + 4, "text-anchor": "end" }, (y.format ?? tickLabel)(value)));
  }
  parts.push(svg("line", { class: "axis", x1: frame.left, x2: frame.right, y1: frame.bottom, y2: frame.bottom }));
  if (x.label) {
    parts.push(svg("text", { class: "name", x: (frame.left + frame.right) / 2, y: height - 6, "text-anchor": "middle" },
      x.label));
  }
  return parts;
}

function ruleParts(rule, frame, scales) {
  const at = rule.x === undefined
    ? { x1: frame.left, x2: frame.right, y1: scales.y(rule.y), y2: scales.y(rule.y) }
    : { x1: scales.x(rule.x), x2: scales.x(rule.x), y1: frame.top, y2: frame.bottom };
  const group = svg("g", { class: `rule ${rule.look ?? ""}` }, svg("line", at));
  if (rule.label) {
    const crowded = at.x1 + 5 + 7 * rule.label.length > frame.right;
    const place = rule.x === undefined
      ? { x: frame.left + 6, y: at.y1 + (at.y1 - frame.top < 26 ? 14 : -5) }
      : { x: at.x1 + (crowded ? -5 : 5), y: frame.top + 11, "text-anchor": crowded ? "end" : "start" };
    group.append(svg("text", place, rule.label));
  }
  return group;
}

function lineParts({ points, look, dots, titles }, scales) {
  const at = points.map(([x, y]) => (y === null || !(y > -Infinity) ? null : [scales.x(x), scales.y(y)]));
  let path = "";
  let open = false;
  for (const place of at) {
    if (place) path += `${open ? "L" : "M"}${place[0].toFixed(1)} ${place[1].toFixed(1)}`;
    open = Boolean(place);
  }
  const group = svg("g", { class: `line ${look}` }, svg("path", { d: path || "M0 0" }));
  at.forEach((place, i) => {
    if (dots && place) {
      const dot = svg("circle", { cx: place[0], cy: place[1], r: dots });
      if (titles) dot.append(svg("title", {}, titles[i]));
      group.append(dot);
    }
  });
  return group;
}

function endLabels(lines, frame, scales) {
  const named = lines.filter((line) => line.label && line.points.some(([, y]) => y !== null));
  const inside = (y) => Math.min(Math.max(y, frame.top), frame.bottom);
  const ends = named.map((line) => inside(scales.y(line.points.findLast(([, y]) => y !== null)[1])));
  return spread(ends, 17).map((y, i) => svg("g", { class: `end ${named[i].look}` },
    svg("path", { d: `M${frame.right + 6} ${y}h14` }),
    svg("text", { x: frame.right + 25, y: y + 4 }, named[i].label)));
}
