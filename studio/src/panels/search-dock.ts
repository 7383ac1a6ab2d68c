/** The search as a picture: for every token its candidates in a small scene, and its bits to toggle by hand. */

import type { Candidate, PlanData } from "../api";
import type { App } from "../app";
import { digitsOf, toggled } from "../code";
import { fill, h } from "../dom";
import { drawBand, drawBox, drawJointCandidate, drawPlan, perAgent, plansOf, startsOf, type Ink } from "../drawing";
import { MapLayer } from "../map-drawing";
import { costColour, rankShare } from "../ramp";
import { candidateFacts } from "../scene-canvas";
import { distanceTo, Viewport } from "../viewport";

const NUM_CHIPS = 8;
const HOVER_PX = 8;
const MAX_SCALE = 6; // pixels per metre

export function searchDock(app: App): HTMLElement {
  const numColumns = Math.max(app.about.model.num_tokens, app.about.joint?.num_tokens ?? 0);
  const columns = Array.from({ length: numColumns }, (_, index) => new TokenColumn(app, index + 1));
  const title = h("h2", {});
  const legend = h("div", { class: "ramp-legend", "aria-hidden": "true" });
  const updateLegend = (): void => {
    const colours = [0, 0.25, 0.5, 0.75, 1].map((share) => costColour(share, app.theme));
    const bar = h("span", { class: "ramp-bar" });
    bar.style.background = `linear-gradient(to right, ${colours.join(", ")})`;
    const grey = h("span", { class: "ramp-grey" });
    fill(legend, "best", bar, "worst", grey, "rejected by the gate");
  };
  app.listen(["look"], updateLegend);
  updateLegend();
  const dock = h(
    "section",
    { class: "dock", "aria-label": "The search, token by token" },
    h("div", { class: "dock-head" }, title, legend),
    h("div", { class: "columns" }, ...columns.map((column) => column.element)),
  );
  const update = (): void => {
    const isSearched = (app.plan?.search.length ?? 0) > 0;
    title.textContent = isSearched || !app.plan ? "Search, token by token" : "What each token adds";
    legend.hidden = !isSearched;
    dock.hidden = app.state.tab === "drive";
    columns.forEach((column, index) => (column.element.hidden = index >= app.model.num_tokens));
  };
  app.listen(["plan", "tab", "scene", "agent"], update);
  update();
  return dock;
}

class TokenColumn {
  readonly element: HTMLElement;
  private readonly canvas = h("canvas", { class: "mini", role: "img" });
  private readonly bits = h("div", { class: "bits", role: "group" });
  private readonly chips = h("div", { class: "candidate-chips" });
  private readonly note = h("span", { class: "faint" });
  private readonly viewport = new Viewport();
  private readonly tooltip = h("div", { class: "tooltip", role: "tooltip", hidden: true });
  private readonly map = new MapLayer();
  private size = { width: 0, height: 0 };
  private isScheduled = false;
  private fitted: unknown = null; // the scene to which the view was fitted

  constructor(
    private readonly app: App,
    private readonly place: number,
  ) {
    this.element = h(
      "div",
      { class: "token-column", "data-token": place },
      h("div", { class: "token-head" }, h("strong", {}, `Token ${place}`), this.bits, this.note),
      h("div", { class: "mini-pane" }, this.canvas, this.tooltip),
      this.chips,
    );
    this.canvas.addEventListener("pointermove", (event) => this.onMove(event));
    this.canvas.addEventListener("pointerleave", () => app.hover(null));
    this.canvas.addEventListener("click", () => app.highlighted && this.choose(app.highlighted));
    app.listen(["plan", "scene", "agent"], () => this.update());
    app.listen(["look", "hover"], () => this.schedule());
    new ResizeObserver(([entry]) => {
      this.size = { width: Math.round(entry!.contentRect.width), height: Math.round(entry!.contentRect.height) };
      this.schedule();
    }).observe(this.canvas.parentElement!);
    this.update();
  }

  /** Draws with the next picture of the screen, once, however much has changed. */
  private schedule(): void {
    if (!this.isScheduled) requestAnimationFrame(() => this.draw());
    this.isScheduled = true;
  }

  private get step(): PlanData["search"][number] | null {
    return this.app.plan?.search.find((step) => step.depth === this.place) ?? null;
  }

  private update(): void {
    if (this.place > this.app.model.num_tokens) return; // the column of a longer code
    this.updateBits();
    const { step } = this;
    const shown = step?.candidates.slice(0, NUM_CHIPS) ?? [];
    const more = (step?.num_candidates ?? 0) - shown.length;
    const prefix = this.app.prefixPlans[this.place - 1];
    if (prefix) {
      const words = this.place === 1 ? "with this token alone" : `with ${this.place} tokens`;
      fill(this.chips, h("span", { class: "faint more" }, `${words}: final std ${prefix.final_std_m.toFixed(1)} m`));
    } else fill(this.chips, ...shown.map((candidate) => this.chip(candidate, step!.num_candidates)), more > 0 && h("span", { class: "faint more" }, `+${more}`));
    this.canvas.setAttribute("aria-label", step ? `${step.num_candidates} candidates of token ${this.place}` : `No search of token ${this.place}`);
    this.schedule();
  }

  private updateBits(): void {
    const { plan, model } = this.app;
    const tokens = plan?.tokens ?? null;
    const id = tokens?.[this.place - 1];
    const levels = plan?.levels ?? 2;
    this.bits.setAttribute("aria-label", `Bits of token ${this.place}`);
    if (id === undefined || !tokens) {
      fill(this.bits);
      this.note.textContent = plan && plan.tokens === null ? "off the levels (refined)" : plan ? "not searched" : "";
      return;
    }
    this.note.textContent = `= ${id}`;
    const buttons = digitsOf(id, levels, model.token_dim).map((digit, dimension) =>
      h(
        "button",
        {
          class: digit ? "bit on" : "bit",
          "aria-pressed": levels === 2 ? String(digit === 1) : null,
          "aria-label": `Token ${this.place}, bit ${dimension + 1}: ${digit}`,
          title: "Toggle this bit by hand and see what it does",
          onclick: () => {
            const next = [...tokens];
            next[this.place - 1] = toggled(id, dimension, levels, model.token_dim);
            this.app.setTokens(next, levels);
          },
        },
        digit,
      ),
    );
    const focused = [...this.bits.children].indexOf(document.activeElement as Element);
    fill(this.bits, ...buttons);
    buttons[focused]?.focus();
  }

  private chip(candidate: Candidate, count: number): HTMLElement {
    const isOut = candidate.is_rejected || !candidate.is_usable;
    const cost = candidate.costs[0];
    const chip = h(
      "button",
      {
        class: `candidate-chip${candidate.is_kept ? " kept" : ""}${isOut ? " out" : ""}`,
        "aria-label": `Candidate ${candidate.tokens.join(" ")}, rank ${candidate.rank + 1}, cost ${cost?.toPrecision(3) ?? "infinite"}${isOut ? ", rejected" : ""}`,
        onmouseenter: () => this.app.hover(candidate),
        onmouseleave: () => this.app.hover(null),
        onfocus: () => this.app.hover(candidate),
        onblur: () => this.app.hover(null),
        onclick: () => this.choose(candidate),
      },
      h("i", {}),
      h("span", {}, cost === null || cost === undefined ? "∞" : short(cost)),
    );
    (chip.firstChild as HTMLElement).style.background = isOut ? "" : costColour(rankShare(candidate.rank, count), this.app.theme);
    return chip;
  }

  /** Takes a candidate by hand, and keeps the tokens after it. */
  private choose(candidate: Candidate): void {
    const after = this.app.plan?.tokens?.slice(candidate.tokens.length) ?? [];
    this.app.setTokens([...candidate.tokens, ...after], this.app.state.spec.settings.levels);
  }

  private draw(): void {
    const { app, canvas, viewport } = this;
    this.isScheduled = false;
    const { width, height } = this.size; // observed: to ask for it would make the browser lay the page out anew
    const { scene, plan } = app;
    if (!width || !height || !scene) return;
    const ratio = window.devicePixelRatio || 1;
    if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
      canvas.width = Math.round(width * ratio);
      canvas.height = Math.round(height * ratio);
    }
    viewport.width = width;
    viewport.height = height;
    const agents = plan ? plansOf(plan).map((one) => one.agent) : app.planned;
    const starts = startsOf(scene, agents);
    const ink: Ink = { context: canvas.getContext("2d")!, viewport, palette: app.palette, theme: app.theme, ratio, markScale: 0.7 };
    this.fit(starts, plan, app.prefixPlans);
    this.map.draw(ink, scene, scene.current_step, "faint");
    const { step } = this;
    for (const candidate of [...(step?.candidates ?? [])].reverse()) {
      drawJointCandidate(ink, starts, candidate, step!.num_candidates, { isHighlighted: candidate === app.highlighted, alpha: 0.9 });
    }
    const prefixes = app.prefixPlans[this.place - 1] ? plansOf(app.prefixPlans[this.place - 1]!) : [];
    for (const [index, start] of starts.entries()) {
      if (!start) continue;
      const prefix = prefixes[index];
      if (prefix) {
        drawBand(ink, prefix, start.heading, app.palette["plan"]!);
        drawPlan(ink, start, prefix, app.palette["plan"]!, scene.dt_s);
      }
      const kind = scene.tracks.find((one) => one.id === agents[index])!.kind;
      drawBox(ink, start, { colour: app.palette["ego"]!, kind });
    }
    const highlighted = step?.candidates.includes(app.highlighted as Candidate) ? app.highlighted : null;
    this.tooltip.hidden = !highlighted;
    if (highlighted) fill(this.tooltip, ...candidateFacts(highlighted));
  }

  /** Shows all candidates of all tokens, the same part of the scene in every column. */
  private fit(starts: ReturnType<typeof startsOf>, plan: PlanData | null, prefixes: PlanData[]): void {
    const candidates = plan?.search.flatMap((step) => step.candidates.flatMap(perAgent)) ?? [];
    const lines = [...candidates, ...(plan ? [plan, ...prefixes] : []).flatMap((one) => plansOf(one).map((agent) => agent.trajectory))];
    let [left, right, low, high] = [Infinity, -Infinity, Infinity, -Infinity];
    const include = (x: number, y: number): void => {
      [left, right, low, high] = [Math.min(left, x), Math.max(right, x), Math.min(low, y), Math.max(high, y)];
    };
    for (const start of starts) if (start) include(start.x, start.y);
    for (const line of lines) line.x_m.forEach((x, index) => include(x, line.y_m[index]!));
    if (left > right) return; // there is nothing to show
    const { centre, scale: before, width, height } = this.viewport;
    // While a goal is dragged the view stays, as long as it shows everything and not much more.
    const share = Math.max(
      (Math.max(right - centre.x, centre.x - left) * 2 * before) / (width - 16),
      (Math.max(high - centre.y, centre.y - low) * 2 * before) / (height - 16),
    );
    if (this.fitted === this.app.scene && share <= 1 && (share > 0.55 || before >= MAX_SCALE)) return;
    this.fitted = this.app.scene;
    this.viewport.centre = { x: (left + right) / 2, y: (low + high) / 2 };
    const scale = Math.min((this.viewport.width - 24) / Math.max(12, right - left), (this.viewport.height - 24) / Math.max(12, high - low));
    this.viewport.scale = Math.min(MAX_SCALE, scale); // a plan to stand still is shown with its surroundings
  }

  private onMove(event: PointerEvent): void {
    const bounds = this.canvas.getBoundingClientRect();
    const world = this.viewport.toWorld(event.clientX - bounds.left, event.clientY - bounds.top);
    let [nearest, found] = [HOVER_PX / this.viewport.scale, null as Candidate | null];
    for (const candidate of this.step?.candidates ?? []) {
      const distance = Math.min(...perAgent(candidate).map((one) => distanceTo(world, one.x_m, one.y_m)));
      if (distance < nearest) [nearest, found] = [distance, candidate];
    }
    if (found !== this.app.highlighted) this.app.hover(found);
  }
}

function short(cost: number): string {
  const size = Math.abs(cost);
  if (size < 0.005) return "0";
  if (size < 0.995) return cost.toFixed(2).replace("0.", "."); // eight numbers share the width of a column
  return size >= 1000 ? cost.toExponential(0) : size >= 10 ? cost.toFixed(0) : cost.toFixed(1);
}
