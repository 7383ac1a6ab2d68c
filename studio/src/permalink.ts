/** The whole state of the page in the part of its address after '#', in words that people can read and change. */

/** How to search; the names are those of the API. */
export interface SearchSettings {
  beam_width: number;
  depth: number | null;
  levels: number;
  gate: boolean;
  refine_steps: number;
  deadline_s: number | null;
}

/** What a plan is made of: an objective to search for, or tokens chosen by hand. */
export interface PlanSpec {
  objective: string;
  tokens: number[] | null;
  settings: SearchSettings;
}

export interface PageState {
  dataset: string;
  scene: number;
  agent: string | null;
  agents: string[]; // planned for jointly; empty: `agent` alone
  spec: PlanSpec;
  pinned: PlanSpec | null;
  time_s: number;
  view: { x: number; y: number; scale: number } | null;
  tab: "plan" | "prior" | "drive";
  draws: DrawSettings | null; // what was drawn from the prior
  drive: DriveSettings | null; // what was driven
  shown: Shown;
}

/** Draws from the prior; the names are those of the API. */
export interface DrawSettings {
  how: "samples" | "most-likely";
  count: number;
  seed: number;
  temperature: number;
}

/** Who drives; the server knows the names. */
export interface DriveSettings {
  driver: string;
  traffic: string;
}

/** What the canvas draws beside the plan. */
export interface Shown {
  candidates: "all" | "none" | number; // of all tokens, of none, or of one (from 1)
  band: boolean;
  recorded: boolean;
  names: boolean;
}

export const DEFAULT_SETTINGS: SearchSettings = {
  beam_width: 1,
  depth: null,
  levels: 2,
  gate: true,
  refine_steps: 0,
  deadline_s: null,
};
export const DEFAULT_SHOWN: Shown = { candidates: "all", band: true, recorded: true, names: false };

export function emptySpec(): PlanSpec {
  return { objective: "", tokens: null, settings: { ...DEFAULT_SETTINGS } };
}

/** What is shown at first. */
export function firstState(datasets: { name: string; has_drives: boolean }[]): PageState {
  const first = datasets[0];
  return {
    dataset: first?.name ?? "",
    scene: first?.name === "sumo-crossings" ? 3 : 0, // a crossing where every way is open
    agent: null,
    agents: [],
    spec: emptySpec(),
    pinned: null,
    time_s: 0,
    view: null,
    tab: first?.has_drives ? "drive" : "plan",
    draws: null,
    drive: null,
    shown: { ...DEFAULT_SHOWN },
  };
}

export function encodeState(state: PageState): string {
  const words = new URLSearchParams();
  words.set("scene", `${state.dataset}/${state.scene}`);
  if (state.agent !== null) words.set("agent", state.agent);
  for (const agent of state.agents) words.append("joint", agent);
  for (const [name, value] of specWords(state.spec)) words.set(name, value);
  if (state.pinned) words.set("pinned", new URLSearchParams(specWords(state.pinned)).toString() || "nothing");
  if (state.time_s !== 0) words.set("time", String(Number(state.time_s.toFixed(1))));
  if (state.tab !== "plan") words.set("tab", state.tab);
  if (state.draws) words.set("draws", [state.draws.how, state.draws.count, state.draws.seed, state.draws.temperature].join(","));
  if (state.drive) words.set("drive", [state.drive.driver, state.drive.traffic].join(","));
  if (state.shown.candidates !== "all") words.set("candidates", String(state.shown.candidates));
  for (const name of ["band", "recorded"] as const) if (!state.shown[name]) words.set(name, "off");
  if (state.shown.names) words.set("names", "on");
  if (state.view) {
    words.set("view", [state.view.x, state.view.y, state.view.scale].map((value) => value.toFixed(1)).join(","));
  }
  return words.toString();
}

/** The state that an address describes; null without a scene. What cannot be read gets its default. */
export function decodeState(hash: string): PageState | null {
  const words = new URLSearchParams(hash.replace(/^#/, ""));
  const place = words.get("scene") ?? "";
  const cut = place.lastIndexOf("/");
  const scene = Number(place.slice(cut + 1));
  if (cut < 1 || !Number.isInteger(scene) || scene < 0) return null;
  const pinned = words.get("pinned");
  const view = (words.get("view") ?? "").split(",").map(Number);
  const [x, y, scale] = view;
  const candidates = words.get("candidates");
  const tab = words.get("tab");
  return {
    dataset: place.slice(0, cut),
    scene,
    agent: words.get("agent"),
    agents: [...new Set(words.getAll("joint"))],
    spec: decodeSpec(words),
    pinned: pinned === null ? null : decodeSpec(new URLSearchParams(pinned === "nothing" ? "" : pinned)),
    time_s: finiteOr(words.get("time"), 0),
    tab: tab === "prior" || tab === "drive" ? tab : "plan",
    draws: decodeDraws(words.get("draws")),
    drive: decodeDrive(words.get("drive")),
    shown: {
      candidates: candidates === "none" ? "none" : candidates ? Math.max(1, Math.round(finiteOr(candidates, 1))) : "all",
      band: words.get("band") !== "off",
      recorded: words.get("recorded") !== "off",
      names: words.get("names") === "on",
    },
    view: view.length === 3 && view.every(Number.isFinite) && scale! > 0 ? { x: x!, y: y!, scale: scale! } : null,
  };
}

function decodeDraws(text: string | null): DrawSettings | null {
  if (text === null) return null;
  const [how, count, seed, temperature] = text.split(",");
  return {
    how: how === "most-likely" ? how : "samples",
    count: within(count ?? null, 1, 64, 24),
    seed: within(seed ?? null, 0, 2 ** 31 - 1, 0),
    temperature: Math.min(100, Math.max(0.1, finiteOr(temperature ?? null, 1))),
  };
}

function decodeDrive(text: string | null): DriveSettings | null {
  const [driver, traffic] = text?.split(",") ?? [];
  return driver && traffic ? { driver, traffic } : null;
}

function specWords(spec: PlanSpec): [string, string][] {
  const { settings } = spec;
  const words: [string, string | null][] = [
    ["objective", spec.objective || null],
    ["tokens", spec.tokens?.join(".") ?? null],
    ["beam", settings.beam_width === 1 ? null : String(settings.beam_width)],
    ["depth", settings.depth === null ? null : String(settings.depth)],
    ["levels", settings.levels === 2 ? null : String(settings.levels)],
    ["gate", settings.gate ? null : "off"],
    ["refine", settings.refine_steps === 0 ? null : String(settings.refine_steps)],
    ["deadline", settings.deadline_s === null ? null : String(settings.deadline_s)],
  ];
  return words.filter((pair): pair is [string, string] => pair[1] !== null);
}

function decodeSpec(words: URLSearchParams): PlanSpec {
  const tokens = (words.get("tokens") ?? "").split(".").filter(Boolean).map(Number);
  const depth = words.get("depth");
  const deadline = words.get("deadline");
  return {
    objective: words.get("objective") ?? "",
    tokens: tokens.length && tokens.every((token) => Number.isInteger(token) && token >= 0) ? tokens : null,
    settings: {
      beam_width: within(words.get("beam"), 1, 64, 1),
      depth: depth === null ? null : within(depth, 1, 64, 1),
      levels: within(words.get("levels"), 2, 9, 2),
      gate: words.get("gate") !== "off",
      refine_steps: within(words.get("refine"), 0, 200, 0),
      deadline_s: deadline === null ? null : Math.min(10, Math.max(0, finiteOr(deadline, 1))),
    },
  };
}

function within(text: string | null, least: number, most: number, otherwise: number): number {
  return Math.min(most, Math.max(least, Math.round(finiteOr(text, otherwise))));
}

function finiteOr(text: string | null, otherwise: number): number {
  const value = text === null || text === "" ? NaN : Number(text);
  return Number.isFinite(value) ? value : otherwise;
}
