// What things are called; the server says it once, with the list of sessions.

const words = { layers: {}, reasons: {}, states: {}, sources: {} };
const OWN_COLOURS = 3;
const own = [];

export const learnWords = (given) => Object.assign(words, given);
export const nameOf = (layer) => words.layers[layer] ?? layer;
export const reasonOf = (reason) => words.reasons[reason] ?? reason;
export const stateOf = (state) => words.states[state] ?? state;
export const states = () => Object.keys(words.states);
export const sourceOf = (source) => words.sources[source] ?? source;

/** The class that colours a layer; those of the application's own take turns. */
export function classOf(layer) {
  if (layer === null || layer === "") return "layer-none";
  if (layer in words.layers) return `layer-${layer}`;
  if (!own.includes(layer)) own.push(layer);
  return `layer-own${own.indexOf(layer) % OWN_COLOURS}`;
}
