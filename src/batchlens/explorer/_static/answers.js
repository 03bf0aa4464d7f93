// Where answers come from: the server, or what an exported page holds.

const stored = document.getElementById("answers");
const tab = Math.random().toString(36).slice(2);
let unpacked = null;

/** A bad value, in a sentence; `superseded` where a newer question has come. */
export class Refusal extends Error {
  constructor(message, superseded = false) {
    super(message);
    this.superseded = superseded;
  }
}

/** The document that answers a question; `turn` counts what the person at the page has asked. */
export async function ask(what, question, turn, signal) {
  if (stored) return lookUp(what, question);
  let response, answer;
  try {
    response = await fetch(`/api/${what}`, {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify({ ...question, tab, turn }),
      signal,
    });
    answer = await response.json(); // also here a newer question may abort this one
  } catch {
    if (signal?.aborted) throw new Refusal("", true);
    throw new Refusal("The explorer does not answer: batchlens explore has ended.");
  }
  if (!response.ok) throw new Refusal(answer.error, response.status === 409);
  return answer;
}

/** What the server makes of a file that somebody chose. */
export async function openFile(file, turn) {
  const bytes = new Uint8Array(await file.arrayBuffer());
  let text = "";
  for (let i = 0; i < bytes.length; i += 0x8000) text += String.fromCharCode(...bytes.subarray(i, i + 0x8000));
  return ask("open", { name: file.name, content: btoa(text) }, turn);
}

async function lookUp(what, question) {
  unpacked ??= await unpack();
  const { problems, targets } = JSON.parse(document.getElementById("facts").textContent).stored;
  const at = problems.findIndex(({ exponent }) => exponent === undefined || exponent === +question.problem.exponent);
  const cell = unpacked[at * targets.length + targets.indexOf(+question.target)];
  if (!cell) throw new Refusal("This page holds no curves for these values.");
  if (what === "steps") {
    const names = question.optimizer.split(",");
    const powers = question.power.split(",").map(Number);
    const curves = cell.steps.curves.filter((c) => names.includes(c.optimizer) && powers.includes(c.power));
    return { ...cell.steps, curves };
  }
  const place = `${+question.power} ${question.batch_size}`;
  const found = what === "risk" ? cell.risk[`${question.optimizer} ${place}`] : cell.schedule[place];
  if (!found) throw new Refusal("This page holds no training for these values.");
  return found;
}

async function unpack() {
  const bytes = Uint8Array.from(atob(stored.textContent), (character) => character.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Response(stream).json();
}
