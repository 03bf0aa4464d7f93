// What is asked, as the address bar holds it. Values are text, as typed: whether they will do is for the server to say.

export const FAMILIES = ["sgd", "momentum", "nesterov", "sgd+ema", "momentum+ema"];
const DEFAULTS = {
  exponent: "1", dim: "10000", bins: "100", rounding: "down", file: "", target: "0.01",
  optimizer: "sgd,momentum,sgd+ema", power: "0", own_power: "",
  batch_sizes: "4,16,64,256,1024,4096,16384,65536,262144,1048576",
  curve: "momentum 0", batch_size: "256", overlay: "",
};

/** The state that an address holds, over defaults. */
export function readState(hash, defaults = {}) {
  const state = { ...DEFAULTS, ...defaults };
  for (const [name, value] of new URLSearchParams(hash.replace(/^#/, ""))) {
    if (name in state && value.length < 1000) state[name] = value;
  }
  return state;
}

/** The part of an address that holds a state: what differs from the defaults. */
export function writeState(state, defaults = {}) {
  const usual = { ...DEFAULTS, ...defaults };
  const params = new URLSearchParams();
  for (const name in usual) if (state[name] !== usual[name]) params.set(name, state[name]);
  return `#${params}`;
}

/** The powers asked for: those ticked, and another one. */
export function powersOf(state) {
  return [state.power, state.own_power].filter(Boolean).join(",");
}

/** What is asked of the server about the curves. */
export function questionOf(state) {
  const { bins, rounding, dim, exponent, file } = state;
  return {
    problem: file ? { file, bins, rounding } : { dim, exponent, bins, rounding },
    target: state.target,
    optimizer: state.optimizer,
    power: powersOf(state),
    batch_sizes: state.batch_sizes,
  };
}
