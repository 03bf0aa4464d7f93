// Numbers and sentences.

const plainWhole = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });

/** 20081 as 20,081. */
export function whole(number) {
  return plainWhole.format(number);
}

/** A number in four digits: 0.1058, 1,263, 2.3e-5. */
export function short(number) {
  if (number === 0) return "0";
  const size = Math.abs(number);
  if (size >= 1e4 && size < 1e7) return whole(number);
  if (size >= 1e7 || size < 1e-3) return number.toExponential(3).replace("e+", "e").replace(/\.?0+e/, "e");
  return String(Number(number.toPrecision(4)));
}

/** Momentum and averaging, whose distance from 1 is what matters: 0.99952, not 0.9995. */
export function nearOne(number) {
  if (number === null || number === undefined) return "";
  const digits = number > 0.9 ? Math.min(2 - Math.floor(Math.log10(1 - number)), 12) : 3;
  return String(Number(number.toFixed(digits)));
}

/** An optimizer with its power. */
export function curveName(curve) {
  return curve.power ? `${curve.optimizer}, power ${short(curve.power)}` : curve.optimizer;
}

/** A critical batch size in words: at least 4,096. */
export function criticalWords(found) {
  if (!found || found.value === null) return "unknown";
  const size = found.value >= 100 ? whole(found.value) : short(found.value);
  return { "=": "", ">=": "at least ", "<=": "at most " }[found.relation] + size;
}

/** The answer in one sentence: how far a larger batch helps, and what the chosen point takes. */
export function sentenceOf(curves, chosen, point, target) {
  const sizes = criticalSizes(curves, chosen);
  const rates = point?.learning_rate ? ` at a learning rate of ${short(point.learning_rate)}` : "";
  const takes = point?.steps === null || point?.steps === undefined
    ? `${curveName(chosen)} does not reach it at batch size ${point ? whole(point.batch_size) : "?"}`
    : `${curveName(chosen)} gets to ${target} in ${whole(point.steps)} steps of ${whole(point.batch_size)}${rates}`;
  return `A larger batch saves steps up to a batch size of ${sizes}; ${takes}.`;
}

/** The critical batch sizes of up to four curves; of more, that of the chosen one and the range. */
function criticalSizes(curves, chosen) {
  const words = (curve) => `${criticalWords(curve.critical_batch_size)} for ${curveName(curve)}`;
  if (curves.length < 5) {
    const parts = curves.map(words);
    return parts.length < 2 ? parts.join("") : `${parts.slice(0, -1).join(", ")} and ${parts.at(-1)}`;
  }
  const known = curves.filter((curve) => curve.critical_batch_size.value !== null)
    .sort((a, b) => a.critical_batch_size.value - b.critical_batch_size.value);
  const ends = known.length ? ` (from ${words(known[0])} to ${words(known.at(-1))})` : "";
  return words(chosen) + ends;
}
