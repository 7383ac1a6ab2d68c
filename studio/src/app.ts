/** The state of the page and everything that changes it. Panels listen; only the server computes. */

import {
  server,
  ServerError,
  type About,
  type Candidate,
  type Draws,
  type Drive,
  type DriveResult,
  type ObjectiveInfo,
  type ObjectiveRow,
  type ParsedObjective,
  type PlanData,
  type PlanRequest,
  type SceneData,
} from "./api";
import type { CopiedCode } from "./codes";
import { openKeptDrive, startDrive } from "./drives";
import { chooseJointAgent } from "./joint";
import { goalsOf, rowsToText, withGoal, type Goal } from "./objective";
import { decodeState, encodeState, firstState, type PageState, type PlanSpec, type SearchSettings, type Shown } from "./permalink";
import { PlanFlow } from "./plan-flow";
import { drawFromPrior } from "./prior";
import type { Theme } from "./ramp";
import { Viewport, type Point } from "./viewport";

/** What changed; panels name the topics that they show. */
export type Topic = "scene" | "agent" | "objective" | "plan" | "pinned" | "time" | "look" | "hover" | "draws" | "drive" | "tab" | "code";

const START_RADIUS_M = 36;
const PARSE_DELAY_MS = 200;

export class App {
  readonly viewport = new Viewport();
  readonly known: Map<string, ObjectiveInfo>;
  readonly flow: PlanFlow;
  state: PageState;
  scene: SceneData | null = null;
  rows: ObjectiveRow[] | null = []; // of the objective; null: it has brackets
  objectiveProblem: string | null = null;
  plan: PlanData | null = null;
  planProblem: string | null = null;
  prefixPlans: PlanData[] = []; // of the first tokens of a plan that was not searched for: what each token adds
  pinnedPlan: PlanData | null = null;
  highlighted: Candidate | null = null;
  highlightedDraw: number | null = null;
  draws: Draws | null = null;
  drive: Drive | null = null; // that was asked for here
  driven: DriveResult | null = null; // the drive that is shown: its result, or one of `waycode simulate`
  copied: CopiedCode | null = null;
  isLoading = true;
  isPlaying = false;
  theme: Theme;
  onNotice: (message: string, kind: "info" | "error") => void = () => {};
  private readonly listeners: [Set<Topic>, () => void][] = [];
  private parseTimer = 0;

  constructor(readonly about: About) {
    this.known = new Map(about.objectives.map((objective) => [objective.name, objective]));
    const stored = localStorage.getItem("theme");
    const preferred = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
    this.theme = stored === "dark" || stored === "light" ? stored : preferred;
    this.state = decodeState(location.hash) ?? firstState(about.datasets);
    this.flow = new PlanFlow(this);
    window.addEventListener("popstate", () => void this.restore());
  }

  /** Calls a panel when one of its topics changes. */
  listen(topics: Topic[], update: () => void): void {
    this.listeners.push([new Set(topics), update]);
  }

  changed(...topics: Topic[]): void {
    for (const [wanted, update] of this.listeners) if (topics.some((topic) => wanted.has(topic))) update();
  }

  get palette(): Record<string, string> {
    return this.about.palettes[this.theme]!;
  }

  /** Several agents are planned for at once, from one code. */
  get isJoint(): boolean {
    return this.state.agents.length > 0;
  }

  /** The model that plans. */
  get model(): About["model"] {
    return this.isJoint ? this.about.joint! : this.about.model;
  }

  /** Ids of all agents that are planned for. */
  get planned(): string[] {
    return this.isJoint ? this.state.agents : this.agent ? [this.agent] : [];
  }

  /** The letter of an agent of a joint plan; null if it is none. */
  letterOf(agent: string | null): string | null {
    return agent !== null && this.state.agents.includes(agent) ? String.fromCharCode(65 + this.state.agents.indexOf(agent)) : null;
  }

  /** The goals that can be dragged: one, or one for each agent of a joint plan. */
  get goals(): Goal[] {
    const goals = goalsOf(this.rows, this.known);
    return this.isJoint ? goals.filter((goal) => goal.agent !== null && this.state.agents.includes(goal.agent)) : goals.slice(0, 1);
  }

  /** That of the chosen agent. */
  get goal(): Point | null {
    return this.goals.find((goal) => !this.isJoint || goal.agent === this.agent) ?? null;
  }

  /** The id of the planned agent; null in a scene without one. */
  get agent(): string | null {
    return this.state.agent ?? this.scene?.default_agent ?? null;
  }

  get step(): number {
    return this.scene ? this.scene.current_step + this.state.time_s / this.scene.dt_s : 0;
  }

  /** Times of the slider, relative to now. */
  get timeRange(): [number, number] {
    if (!this.scene) return [0, 0];
    const { dt_s, current_step, num_steps } = this.scene;
    const recorded = (num_steps - 1 - current_step) * dt_s;
    return [-current_step * dt_s, this.isDriveShown ? recorded : Math.max(recorded, this.model.horizon_s)];
  }

  get isDriveShown(): boolean {
    return this.state.tab === "drive" && this.driven !== null;
  }

  async openScene(dataset: string, scene: number, tab = this.state.tab): Promise<void> {
    this.state = { ...this.state, dataset, scene, tab, agent: null, agents: [], view: null, time_s: 0, pinned: null, draws: null, drive: null };
    this.state.spec = { ...this.state.spec, tokens: null };
    // A point in one scene means nothing in another.
    if (this.rows === null || goalsOf(this.rows, this.known).length) this.setSpecObjective([], "");
    this.pinnedPlan = null;
    this.remember("push");
    await this.loadScene();
  }

  chooseAgent(id: string): void {
    if (id === this.agent) return;
    const track = this.scene?.tracks.find((one) => one.id === id);
    if (!track || track.x_m[this.scene!.current_step] === null) {
      this.onNotice(`${id} is not there now: only road users at time 0 can be planned for`, "error");
      return;
    }
    if (this.isJoint) return chooseJointAgent(this, id);
    this.state = { ...this.state, agent: id, pinned: null, draws: null, spec: { ...this.state.spec, tokens: null } };
    if (this.goal) this.setSpecObjective([], "");
    this.pinnedPlan = null;
    this.draws = null;
    this.remember("push");
    this.changed("agent", "draws", "pinned", "objective");
    this.replan();
  }

  /** What was planned for other agents does not count any more. */
  forgetPlans(): void {
    this.state = { ...this.state, pinned: null, draws: null, spec: { ...this.state.spec, tokens: null } };
    this.pinnedPlan = this.draws = this.plan = null;
    this.prefixPlans = [];
  }

  /** The goal was clicked, dragged or dropped; in a joint plan that of an agent, by default of the chosen one. */
  moveGoal(point: Point, phase: "click" | "drag" | "drop", time: number, agent: string | null = null): void {
    if (!this.agent) return;
    this.flow.isGoalMoving = phase === "drag";
    if (this.isJoint && agent !== null && agent !== this.agent) {
      this.state = { ...this.state, agent };
      this.changed("agent");
    }
    const rows = withGoal(this.rows, point, this.known, this.isJoint ? this.agent : null);
    this.setSpecObjective(rows, rowsToText(rows, this.known));
    this.state.spec = { ...this.state.spec, tokens: null };
    if (phase !== "drag") this.remember("push");
    this.changed("objective");
    this.replan(time);
  }

  setRows(rows: ObjectiveRow[]): void {
    this.setSpecObjective(rows, rowsToText(rows, this.known));
    this.state.spec = { ...this.state.spec, tokens: null };
    this.remember("replace");
    this.changed("objective");
    this.replan();
  }

  /** The text was edited: the server's parser says what it means. */
  setObjectiveText(text: string): void {
    this.state.spec = { ...this.state.spec, objective: text, tokens: null };
    this.objectiveProblem = null;
    clearTimeout(this.parseTimer);
    this.parseTimer = window.setTimeout(() => void this.parse(), PARSE_DELAY_MS);
  }

  setSettings(change: Partial<SearchSettings>): void {
    this.state.spec = { ...this.state.spec, tokens: null, settings: { ...this.state.spec.settings, ...change } };
    this.remember("replace");
    this.changed("objective");
    this.replan();
  }

  /** Decodes tokens chosen by hand, drawn or pasted; null searches again. */
  setTokens(tokens: number[] | null, levels?: number): void {
    const settings = levels === undefined ? this.state.spec.settings : { ...this.state.spec.settings, levels };
    this.state.spec = { ...this.state.spec, tokens, settings };
    this.remember("push");
    this.changed("objective");
    this.replan();
  }

  setTime(time_s: number): void {
    const [first, last] = this.timeRange;
    this.state.time_s = Math.min(last, Math.max(first, time_s));
    this.changed("time");
    if (!this.isPlaying) this.remember("replace");
  }

  setShown(change: Partial<Shown>): void {
    this.state.shown = { ...this.state.shown, ...change };
    this.remember("replace");
    this.changed("look");
  }

  setTab(tab: PageState["tab"]): void {
    this.state = { ...this.state, tab };
    this.remember("replace");
    this.changed("tab", "draws", "time");
  }

  setTheme(theme: Theme): void {
    this.theme = theme;
    localStorage.setItem("theme", theme);
    this.changed("look");
  }

  viewMoved(): void {
    const { centre, scale } = this.viewport;
    this.state.view = { ...centre, scale };
    this.remember("replace");
    this.changed("look");
  }

  fitView(): void {
    const now = this.scene?.current_step ?? 0;
    const tracks = this.scene?.tracks.filter((one) => this.planned.includes(one.id) && one.x_m[now] !== null) ?? [];
    const points: Point[] = tracks.map((one) => ({ x: one.x_m[now]!, y: one.y_m[now]! }));
    this.viewport.fitAll(this.isJoint ? [...points, ...this.goals] : points, START_RADIUS_M);
    this.state.view = null;
    this.remember("replace");
    this.changed("look");
  }

  hover(candidate: Candidate | null): void {
    this.highlighted = candidate;
    this.changed("hover");
  }

  /** The request of a plan that was searched for. */
  request(spec: PlanSpec = this.state.spec): PlanRequest {
    const gate = spec.settings.gate && Object.keys(this.model.sigma_max_m).length > 0; // a model without limits has no gate
    return { ...this.choice(), objective: spec.objective, ...spec.settings, gate, with_search: true };
  }

  choice(): { dataset: string; scene: number; agent: string | null; agents: string[] } {
    return { dataset: this.state.dataset, scene: this.state.scene, agent: this.agent, agents: this.state.agents };
  }

  /** Runs something that asks the server; a problem becomes a notice. */
  async guarded(work: () => Promise<void>): Promise<void> {
    try {
      await work();
    } catch (error) {
      if (!(error instanceof ServerError)) throw error;
      this.onNotice(error.message, "error");
    }
  }

  /** Writes the state into the address; a step of its own in the browser's history, or in place of the last. */
  remember(how: "push" | "replace"): void {
    const address = `#${encodeState(this.state)}`;
    if (address === location.hash) return;
    if (how === "push") history.pushState(null, "", address);
    else history.replaceState(null, "", address);
  }

  private async restore(): Promise<void> {
    const state = decodeState(location.hash);
    if (!state) return;
    const isSame = this.scene && state.dataset === this.state.dataset && state.scene === this.state.scene;
    this.state = state;
    if (!isSame) return this.loadScene();
    if (state.view) this.showView(state.view);
    await this.restorePlan();
    this.changed("agent", "objective", "pinned", "time", "look", "tab");
  }

  async loadScene(): Promise<void> {
    const { dataset, scene } = this.state;
    this.isLoading = true;
    this.plan = this.drive = this.driven = this.draws = this.highlighted = null;
    this.planProblem = null;
    this.changed("scene");
    try {
      const loaded = await server.scene(dataset, scene);
      if (this.state.dataset !== dataset || this.state.scene !== scene) return; // another was opened meanwhile
      this.scene = loaded;
    } catch (error) {
      if (!(error instanceof ServerError)) throw error;
      this.scene = null;
      this.isLoading = false;
      this.planProblem = error.message;
      this.changed("scene", "plan");
      return;
    }
    this.isLoading = false;
    const isThere = (id: string): boolean => this.scene!.tracks.some((track) => track.id === id);
    if (this.state.agent && !isThere(this.state.agent)) this.state.agent = null;
    if (this.isJoint && !this.about.joint) {
      this.onNotice(this.about.joint_problem ?? "There is no joint model.", "error");
      this.state.agents = [];
    }
    this.state.agents = this.state.agents.filter(isThere).slice(0, this.about.limits.max_agents);
    if (this.isJoint && !this.state.agents.includes(this.agent ?? "")) this.state.agent = this.state.agents[0]!;
    this.changed("scene", "agent", "objective", "time", "draws", "drive", "tab");
    if (this.state.view) this.showView(this.state.view);
    else this.fitView();
    await Promise.all([this.restorePlan(), openKeptDrive(this)]);
  }

  private showView(view: { x: number; y: number; scale: number }): void {
    this.viewport.centre = { x: view.x, y: view.y };
    this.viewport.scale = view.scale;
    this.changed("look");
  }

  /** Plans what the address asks for, the pinned plan too. */
  private async restorePlan(): Promise<void> {
    await this.parse();
    const { pinned } = this.state;
    this.pinnedPlan = null;
    if (pinned) {
      await this.guarded(async () => {
        this.pinnedPlan = pinned.tokens
          ? await server.decode({ ...this.choice(), tokens: pinned.tokens, levels: pinned.settings.levels })
          : pinned.objective
            ? await server.plan(this.request(pinned))
            : null;
      });
    }
    this.changed("pinned");
    const { draws, drive } = this.state;
    if (draws) await drawFromPrior(this, draws);
    if (drive && !this.drive && !this.scene?.has_drive) void startDrive(this, drive, false);
  }

  setSpecObjective(rows: ObjectiveRow[], text: string): void {
    this.rows = rows;
    this.objectiveProblem = null;
    this.state.spec = { ...this.state.spec, objective: text };
  }

  private async parse(): Promise<void> {
    const text = this.state.spec.objective.trim();
    let parsed: ParsedObjective | null = null;
    if (text) {
      try {
        parsed = await server.parse(text);
      } catch (error) {
        if (!(error instanceof ServerError)) throw error;
        if (text === this.state.spec.objective.trim()) this.objectiveProblem = error.message;
        this.changed("objective");
        return;
      }
    }
    if (text !== this.state.spec.objective.trim()) return; // edited meanwhile
    this.objectiveProblem = null;
    this.rows = parsed ? parsed.rows : [];
    this.remember("replace");
    this.changed("objective");
    this.replan();
  }


  /** Plans anew. `began` is when the user asked for it. */
  replan(began = performance.now()): void {
    this.flow.replan(began);
  }
}
