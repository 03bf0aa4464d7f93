// Settings of the chosen point, ready to copy as a command and as Python: both give the numbers shown.

import { byId, html } from "./dom.js";
import { curveName, nearOne, short, whole } from "./words.js";

/** Options and Python of the problem that a question is about; `file` is what is known of its file. */
function problemWords({ problem }, file) {
  const { bins, rounding } = problem;
  if (!problem.file) {
    const { dim, exponent } = problem;
    const law = `bl.NoisyQuadratic.power_law(dim=${plain(dim)}, exponent=${plain(exponent)})`;
    return {
      options: `--dim ${dim} --exponent ${exponent} --bins ${bins} --rounding ${rounding}`,
      python: +bins ? `${law}.binned(${plain(bins)}, rounding="${rounding}")` : law,
    };
  }
  const binned = +bins && file.problem.bins > +bins ? `.binned(${plain(bins)}, rounding="${rounding}")` : "";
  return {
    options: `--problem ${quoted(file.name)} --bins ${bins} --rounding ${rounding}`,
    python: `bl.read_problem(${JSON.stringify(file.name)})${binned}`,
  };
}

const plain = (text) => String(Number(text));
const quoted = (text) => (/^[\w./-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`);

/** The command that prints a point. */
export function pointCommand(question, curve, size, file) {
  return `batchlens steps --optimizer ${curve.optimizer} --power ${plain(curve.power)} --batch-sizes ${plain(size)} `
    + `--target ${plain(question.target)} ${problemWords(question, file).options}`;
}

/** Python that finds a point. */
export function pointPython(question, curve, size, file) {
  const power = curve.power ? `, power=${plain(curve.power)}` : "";
  return [
    "import batchlens as bl",
    "",
    `problem = ${problemWords(question, file).python}`,
    `best = bl.tune(problem, "${curve.optimizer}", batch_size=${plain(size)}, target=${plain(question.target)}${power})`,
    "print(best.steps, best.rule)",
  ].join("\n");
}

/** The command that prints the best schedule. */
export function scheduleCommand(question, curve, size, file) {
  return `batchlens schedule --batch-size ${plain(size)} --target ${plain(question.target)} `
    + `--power ${plain(curve.power)} ${problemWords(question, file).options}`;
}

/** Fills the card of the chosen point. */
export function showPoint(question, curve, point, file, exact) {
  byId("point-title").textContent = `${curveName(curve)} at batch size ${whole(point.batch_size)}`;
  const about = exact ? "" : "about ";
  const entries = point.steps === null ? [["Steps", "the target is beyond reach"]] : [
    ["Steps", about + whole(point.steps)],
    ["Examples", about + whole(point.steps * point.batch_size)],
    ["Learning rate", short(point.learning_rate)],
    ...point.momentum ? [["Momentum", nearOne(point.momentum)]] : [],
    ...point.averaging ? [["Averaging", nearOne(point.averaging)]] : [],
    ...point.limits?.includes("stability") ? [["At the edge of", "stability"]] : [],
  ];
  byId("point-settings").replaceChildren(...entries.map(([name, value]) =>
    html("div", {}, html("dt", { textContent: name }), html("dd", { textContent: value }))));
  showCommand(byId("command"), pointCommand(question, curve, point.batch_size, file));
  byId("python").textContent = pointPython(question, curve, point.batch_size, file);
  showCommand(byId("schedule-command"), scheduleCommand(question, curve, point.batch_size, file));
}

/** A command whose lines break before an option, never inside one. */
function showCommand(element, command) {
  const parts = command.split(/ (?=--)/);
  element.replaceChildren(...parts.flatMap((part, i) => [i ? " " : "", html("span", { textContent: part })]));
}

/** Makes buttons copy what they name, and say so. */
export function listenForCopies() {
  for (const button of document.querySelectorAll("button[data-copies]")) {
    const usual = button.textContent;
    button.addEventListener("click", async () => {
      const source = byId(button.dataset.copies);
      try {
        await navigator.clipboard.writeText(source.textContent);
        button.textContent = "Copied";
      } catch {
        source.hidden = false;
        getSelection().selectAllChildren(source);
        button.textContent = "Selected";
      }
      setTimeout(() => { button.textContent = usual; }, 1500);
    });
  }
}
