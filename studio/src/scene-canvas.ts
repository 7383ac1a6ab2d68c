/** The canvas on which a scene is shown and a plan is made: pan, zoom, pick an agent, set and drag the goal. */

import type { Candidate, PlanData, SceneData, Track } from "./api";
import { h } from "./dom";
import {
  badge,
  boxAt,
  dot,
  drawBand,
  drawBox,
  drawJointCandidate,
  drawGoal,
  drawPlan,
  drawScale,
  label,
  perAgent,
  plansOf,
  startsOf,
  strokeLine,
  type Ink,
  type Palette,
} from "./drawing";
import { MapLayer } from "./map-drawing";
import type { Goal } from "./objective";
import type { Theme } from "./ramp";
import { distanceTo, inBox, type Point, type Viewport } from "./viewport";

const GRAB_PX = 18;
const CLICK_PX = 4; // a pointer that moves less has clicked
const HOVER_PX = 9;

/** Everything that a frame shows. */
export interface Frame {
  scene: SceneData;
  tracks: Track[]; // those of the scene, or of a drive
  step: number;
  agent: string | null;
  planned: string[]; // ids of all agents that are planned for; more than one in a joint plan
  plan: PlanData | null;
  planColour: "plan" | "pinned";
  steps: PlanData["search"]; // whose candidates are shown
  highlighted: Candidate | null;
  samples: { plan: PlanData; share: number }[];
  highlightedSample: number | null;
  goals: Goal[];
  letterOf(agent: string | null): string | null; // in a joint plan
  expert: { x_m: number[]; y_m: number[] } | null; // of a drive: where the ego was recorded to go
  drivenPlan: { x_m: number[]; y_m: number[] } | null;
  band: boolean;
  recorded: boolean;
  names: boolean;
}

export interface CanvasListener {
  onAgent(id: string): void;
  onGoal(point: Point, phase: "click" | "drag" | "drop", time: number, agent: string | null): void;
  onHover(candidate: Candidate | null): void;
  onView(): void;
}

export class SceneCanvas {
  readonly element: HTMLDivElement;
  readonly canvas: HTMLCanvasElement;
  private readonly context: CanvasRenderingContext2D;
  private readonly tooltip: HTMLDivElement;
  private readonly pointers = new Map<number, Point>();
  private readonly map = new MapLayer();
  private frame: Frame | null = null;
  private pressed: { x: number; y: number; goal: Goal | null; hasMoved: boolean } | null = null;
  private hoveredTrack: Track | null = null;

  constructor(
    readonly viewport: Viewport,
    private readonly look: () => { palette: Palette; theme: Theme },
    private readonly listener: CanvasListener,
    name: string,
  ) {
    this.canvas = h("canvas", { tabindex: 0, role: "application", "aria-label": name, class: "scene-canvas" });
    this.tooltip = h("div", { class: "tooltip", role: "tooltip", hidden: true });
    this.element = h("div", { class: "scene-pane" }, this.canvas, this.tooltip);
    this.context = this.canvas.getContext("2d")!;
    this.canvas.addEventListener("pointerdown", (event) => this.onDown(event));
    this.canvas.addEventListener("pointermove", (event) => this.onMove(event));
    this.canvas.addEventListener("pointerup", (event) => this.onUp(event));
    this.canvas.addEventListener("pointercancel", (event) => this.onUp(event));
    this.canvas.addEventListener("pointerleave", () => this.hover(null, null));
    this.canvas.addEventListener("wheel", (event) => this.onWheel(event), { passive: false });
    new ResizeObserver(() => this.resize()).observe(this.element);
  }

  /** Draws a frame, and draws it again when the size changes. */
  show(frame: Frame): void {
    this.frame = frame;
    this.draw();
  }

  resize(): void {
    const { clientWidth, clientHeight } = this.element;
    if (clientWidth === 0 || clientHeight === 0) return;
    const ratio = window.devicePixelRatio || 1;
    this.canvas.width = Math.round(clientWidth * ratio);
    this.canvas.height = Math.round(clientHeight * ratio);
    this.viewport.width = clientWidth;
    this.viewport.height = clientHeight;
    this.draw();
  }

  draw(): void {
    const { frame } = this;
    if (!frame || this.canvas.width === 0) return;
    const ink: Ink = { context: this.context, viewport: this.viewport, ratio: window.devicePixelRatio || 1, markScale: 1, ...this.look() };
    this.map.draw(ink, frame.scene, frame.step, "full");
    const starts = startsOf(frame.scene, frame.plan ? plansOf(frame.plan).map((one) => one.agent) : frame.planned);
    if (frame.recorded && frame.expert) drawRecordedLine(ink, frame.expert);
    else if (frame.recorded) {
      for (const track of frame.scene.tracks) if (frame.planned.includes(track.id)) drawRecorded(ink, frame.scene, track);
    }
    if (frame.plan && frame.band) {
      for (const [index, one] of plansOf(frame.plan).entries()) {
        if (starts[index]) drawBand(ink, one, starts[index].heading, ink.palette[frame.planColour]!);
      }
    }
    for (const [index, sample] of frame.samples.entries()) this.drawSample(ink, frame, sample, index === frame.highlightedSample);
    for (const step of frame.steps) {
      // The worst first, so that the best lie on top.
      for (const candidate of [...step.candidates].reverse()) drawJointCandidate(ink, starts, candidate, step.num_candidates, { isHighlighted: false, alpha: 0.75 });
    }
    if (frame.plan) {
      for (const [index, one] of plansOf(frame.plan).entries()) {
        if (starts[index]) drawPlan(ink, starts[index], one, ink.palette[frame.planColour]!, frame.scene.dt_s);
      }
    }
    if (frame.highlighted) {
      const count = frame.steps.find((step) => step.depth === frame.highlighted!.tokens.length)?.num_candidates ?? 8;
      drawJointCandidate(ink, starts, frame.highlighted, count, { isHighlighted: true, alpha: 1 });
    }
    if (frame.drivenPlan) strokeLine(ink, frame.drivenPlan, { colour: ink.palette["plan"]!, width: 3, casing: true });
    this.drawTracks(ink, frame);
    for (const goal of frame.goals) {
      drawGoal(ink, goal, this.pressed?.goal?.agent === goal.agent && this.pressed.goal !== null);
      const letter = frame.letterOf(goal.agent);
      const aside = 13 / this.viewport.scale;
      if (letter) badge(ink, goal.x + aside, goal.y + aside, letter, ink.palette["goal"]!);
    }
    drawScale(ink);
  }

  private drawSample(ink: Ink, frame: Frame, sample: Frame["samples"][number], isHighlighted: boolean): void {
    const plans = plansOf(sample.plan);
    for (const [index, start] of startsOf(frame.scene, plans.map((one) => one.agent)).entries()) {
      if (!start) continue;
      const { x_m, y_m } = plans[index]!.trajectory;
      strokeLine(ink, { x_m: [start.x, ...x_m], y_m: [start.y, ...y_m] }, {
        colour: ink.palette["sample"]!,
        width: isHighlighted ? 4 : 1.2 + 4 * sample.share,
        alpha: isHighlighted ? 1 : 0.75,
        casing: isHighlighted,
      });
      dot(ink, x_m.at(-1)!, y_m.at(-1)!, isHighlighted ? 5 : 3, ink.palette["sample"]!);
    }
  }

  private drawTracks(ink: Ink, frame: Frame): void {
    for (const track of frame.tracks) {
      const box = boxAt(track, frame.step);
      if (!box) continue;
      const colour = ink.palette[frame.planned.includes(track.id) ? "ego" : track.kind]!;
      drawBox(ink, box, { colour, kind: track.kind, isSelected: track.id === frame.agent });
      const letter = frame.letterOf(track.id);
      if (letter) badge(ink, box.x, box.y, letter, ink.palette["ego"]!);
      if (frame.names || track === this.hoveredTrack) label(ink, box.x, box.y + box.width / 2, track.id);
    }
    const later = frame.step - frame.scene.current_step;
    if (!frame.plan || later <= 0) return;
    for (const { agent, trajectory } of plansOf(frame.plan)) {
      const track = frame.scene.tracks.find((one) => one.id === agent);
      const { x_m, y_m, heading_rad } = trajectory;
      const index = Math.min(x_m.length - 1, Math.round(later) - 1);
      if (!track || index < 0) continue;
      const box = { x: x_m[index]!, y: y_m[index]!, heading: heading_rad[index]!, length: track.length_m, width: track.width_m };
      drawBox(ink, box, { colour: ink.palette[frame.planColour]!, kind: track.kind });
    }
  }

  private position(event: PointerEvent | WheelEvent): Point {
    const bounds = this.canvas.getBoundingClientRect();
    return { x: event.clientX - bounds.left, y: event.clientY - bounds.top };
  }

  private onDown(event: PointerEvent): void {
    if (event.button !== 0) return;
    const at = this.position(event);
    this.pointers.set(event.pointerId, at);
    this.canvas.setPointerCapture(event.pointerId);
    this.pressed = { ...at, goal: this.goalAt(at), hasMoved: false };
    this.hover(null, null);
    this.draw();
  }

  private onMove(event: PointerEvent): void {
    const at = this.position(event);
    const before = this.pointers.get(event.pointerId);
    if (!before || !this.pressed) return this.findHovered(at);
    const others = [...this.pointers].filter(([id]) => id !== event.pointerId).map(([, point]) => point);
    this.pointers.set(event.pointerId, at);
    if (others.length) {
      const [other] = others;
      const factor = Math.hypot(at.x - other!.x, at.y - other!.y) / Math.max(1, Math.hypot(before.x - other!.x, before.y - other!.y));
      this.viewport.zoomAt((at.x + other!.x) / 2, (at.y + other!.y) / 2, factor);
      this.pressed.hasMoved = true;
      this.listener.onView();
      return;
    }
    this.pressed.hasMoved ||= Math.hypot(at.x - this.pressed.x, at.y - this.pressed.y) > CLICK_PX;
    if (!this.pressed.hasMoved) return;
    if (this.pressed.goal) this.listener.onGoal(this.viewport.toWorld(at.x, at.y), "drag", event.timeStamp, this.pressed.goal.agent);
    else {
      this.viewport.pan(at.x - before.x, at.y - before.y);
      this.listener.onView();
    }
  }

  private onUp(event: PointerEvent): void {
    const { pressed } = this;
    const at = this.position(event);
    this.pointers.delete(event.pointerId);
    if (!pressed || this.pointers.size) return;
    this.pressed = null;
    const world = this.viewport.toWorld(at.x, at.y);
    if (pressed.goal) {
      if (pressed.hasMoved) this.listener.onGoal(world, "drop", event.timeStamp, pressed.goal.agent);
    } else if (!pressed.hasMoved && event.type === "pointerup") {
      const track = this.trackAt(world);
      if (track) this.listener.onAgent(track.id);
      else this.listener.onGoal(world, "click", event.timeStamp, null);
    }
    this.draw();
  }

  private onWheel(event: WheelEvent): void {
    event.preventDefault();
    const at = this.position(event);
    this.viewport.zoomAt(at.x, at.y, Math.exp(-event.deltaY * (event.deltaMode === 1 ? 0.05 : 0.0015)));
    this.listener.onView();
  }

  /** The goal within reach of the pointer; of several the nearest. */
  private goalAt(at: Point): Goal | null {
    let [nearest, found] = [GRAB_PX, null as Goal | null];
    for (const goal of this.frame?.goals ?? []) {
      const point = this.viewport.toScreen(goal.x, goal.y);
      const distance = Math.hypot(point.x - at.x, point.y - at.y);
      if (distance <= nearest) [nearest, found] = [distance, goal];
    }
    return found;
  }

  private trackAt(world: Point): Track | null {
    const { frame } = this;
    const found = frame?.tracks.filter((track) => {
      const box = boxAt(track, frame.step);
      return box !== null && inBox(world, box, 4 / this.viewport.scale);
    });
    return found?.[0] ?? null;
  }

  private findHovered(at: Point): void {
    const { frame } = this;
    if (!frame) return;
    const world = this.viewport.toWorld(at.x, at.y);
    const track = this.trackAt(world);
    let [nearest, found] = [HOVER_PX / this.viewport.scale, null as Candidate | null];
    if (!track && !this.goalAt(at)) {
      for (const candidate of frame.steps.flatMap((step) => step.candidates)) {
        const distance = Math.min(...perAgent(candidate).map((one) => distanceTo(world, one.x_m, one.y_m)));
        if (distance < nearest) [nearest, found] = [distance, candidate];
      }
    }
    this.canvas.style.cursor = this.goalAt(at) ? "grab" : track ? "pointer" : "crosshair";
    this.hover(track, found, at);
  }

  private hover(track: Track | null, candidate: Candidate | null, at?: Point): void {
    if (candidate !== (this.frame?.highlighted ?? null)) this.listener.onHover(candidate);
    if (track !== this.hoveredTrack) {
      this.hoveredTrack = track;
      this.draw();
    }
    this.tooltip.hidden = !candidate || !at;
    if (!candidate || !at) return;
    this.tooltip.replaceChildren(...candidateFacts(candidate));
    const isRight = at.x > this.viewport.width - 200;
    this.tooltip.style.left = `${isRight ? at.x - 14 : at.x + 14}px`;
    this.tooltip.style.top = `${Math.min(at.y + 14, this.viewport.height - 130)}px`;
    this.tooltip.style.transform = isRight ? "translateX(-100%)" : "";
  }
}

function drawRecorded(ink: Ink, scene: SceneData, track: Track): void {
  const known = track.x_m.map((_, step) => step).filter((step) => step >= scene.current_step && track.x_m[step] !== null);
  const line = { x_m: known.map((step) => track.x_m[step]!), y_m: known.map((step) => track.y_m[step]!) };
  drawRecordedLine(ink, line);
}

function drawRecordedLine(ink: Ink, line: { x_m: number[]; y_m: number[] }): void {
  if (line.x_m.length > 1) strokeLine(ink, line, { colour: ink.palette["recorded"]!, width: 2.5, dash: [1, 6], alpha: 0.95 });
}

/** The numbers of a candidate, for tooltips. */
export function candidateFacts(candidate: Candidate): Node[] {
  const fate = !candidate.is_usable
    ? "no finite cost"
    : candidate.is_rejected
      ? "rejected by the gate"
      : candidate.is_kept
        ? "kept"
        : "dropped";
  const rows: [string, string][] = [
    ["rank", String(candidate.rank + 1)],
    ["cost", candidate.costs.map((cost) => (cost === null ? "∞" : cost.toPrecision(4))).join(" · ")],
    ["final std", candidate.final_std_m === null ? "—" : `${candidate.final_std_m.toFixed(2)} m`],
  ];
  if (candidate.log_probability !== null) rows.push(["log p", candidate.log_probability.toFixed(2)]);
  return [
    h("strong", {}, `Token ${candidate.tokens.length}: ${candidate.tokens.join(" ")}`),
    h("span", { class: "fate" }, fate),
    h("dl", {}, ...rows.flatMap(([name, value]) => [h("dt", {}, name), h("dd", {}, value)])),
  ];
}
