// What things are called, and which of the stylesheet's colours they have; the plots of the package say the same.

export const LAYERS = {
  L0: "Identity",
  L1: "Preferences",
  L2: "Topics",
  L3: "Entities",
  L4: "Conversation arc",
  L5: "Retrieval",
  L6: "History",
  L7: "Message",
};
export const OVERHEAD = "tools and framing";
const OWN_COLOURS = 3;

/** The class that colours each layer; those of the application's own take turns. */
export function layerClasses(names) {
  const own = names.filter((name) => !Object.hasOwn(LAYERS, name) && name !== OVERHEAD);
  const classOf = (name) =>
    Object.hasOwn(LAYERS, name) ? `layer-${name}` : `layer-own${own.indexOf(name) % OWN_COLOURS}`;
  return new Map(names.map((name) => [name, name === OVERHEAD ? "layer-overhead" : classOf(name)]));
}

export const STATES = {
  verbatim: "verbatim",
  retrieved: "retrieved",
  summarized: "behind the summary",
  omitted: "left out",
};

export const STATUSES = { included: ["●", "included"], shrunk: ["◐", "shrunk"], omitted: ["○", "omitted"] };

export const SOURCES = {
  messages: "this conversation",
  conversations: "other conversations",
  memories: "memories",
  documents: "documents",
};

/** Reason codes: what stands in the table, and what it means. */
export const REASONS = {
  required: ["required", "Always sent: the system prompt, the current message, the newest call group."],
  configured: ["configured", "Given in the settings, and it fits."],
  detected: ["detected", "Named in the current message."],
  recent: ["recent", "Among the newest messages, verbatim."],
  summary: ["summary", "Stands for older messages."],
  pinned: ["pinned", "Kept because the application or you asked for it."],
  shortened: ["shortened", "Stands in short: too large, an old result of a tool, or only to be summarised."],
  dropped: ["dropped", "Left out because the application or you asked for it."],
  relevant: ["relevant", "Found for the current message."],
  as_sent: ["sent again", "Chosen for an earlier message of this stretch, and sent with it again."],
  summarized: ["summarised", "Not verbatim; a summary in this prompt has read it."],
  no_room: ["no room", "Does not fit into what its layer was given."],
  ranked_lower: ["ranked lower", "Others are worth more per token."],
  low_relevance: ["low relevance", "Less relevant than the average candidate."],
  remembered: ["remembered", "Known about the user, and among what this conversation shows of that."],
  next_snapshot: ["next compaction", "Learned since this conversation chose what it shows: waits for its next compaction step."],
  stale: ["stale", "As it was known before the last change: the new text is not compiled yet."],
  not_compiled: ["not compiled", "Known, but there is no text of it yet: it is compiled in the background."],
  not_detected: ["not detected", "Not named in the current message."],
  switched_off: ["switched off", "A setting leaves it out."],
  usage_limit: ["usage limit", "Little of a usage limit is left, and others count more."],
  no_human_message: ["no human message", "The turn has no human message to stand in front of."],
  repaired: ["repaired", "Could not be sent as it stands; see the repairs."],
  clipped: ["clipped", "Larger than what there is: its middle is left out."],
  compressed: ["compressed", "Made shorter by a step of the last resort, because the exact recount was over the budget."],
  pruned: ["pruned", "Taken out again because the exact recount was over the budget."],
};

export const reasonWord = (reason) => REASONS[reason]?.[0] ?? reason;

export const PRESERVATIONS = {
  keep: ["Keep verbatim", "kept verbatim while it fits"],
  summarize: ["Summarise", "only in short and in summaries"],
  drop: ["Leave out", "left out of prompts, still found by the recall tool"],
};

export const FORCED = {
  knowledge: ["Knowledge", "all topics, entities and facts"],
  documents: ["Documents", "in full"],
  history: ["History", "as many verbatim messages as the budget has room for"],
  budget: ["Budget", "the whole budget"],
};

export const TIERS = {
  healthy: "Enough of the limit is left: nothing is held back.",
  caution: "Less history is sent word for word, and less of the budget is used.",
  warning: "Less knowledge, documents in short, little history, a smaller budget.",
  critical: "What must be sent, and little besides.",
};

export const LIMITS = {
  session_tokens: "tokens of this session",
  session_cost: "cost of this session",
  month_tokens: "tokens of this month",
  month_cost: "cost of this month",
};

export const HISTORY = {
  empty: "empty",
  full: "whole",
  windowed: "windowed: recent messages, a summary of the rest",
  compacted: "compacted: summary in two zones, recent messages",
  multi_level: "multi-level: summaries of summaries",
};

/** How full a budget is, in three steps. */
export function zoneOf(share) {
  if (share < 0.6) return { name: "green", word: "room to spare" };
  if (share < 0.8) return { name: "yellow", word: "filling up" };
  return { name: "red", word: "nearly full" };
}
