/** Drawing on a canvas: road users in metres, lines and marks in pixels. The map is in map-drawing.ts. */

import type { Candidate, PlanData, SceneData, Track } from "./api";
import { costColour, rankShare, type Theme } from "./ramp";
import { sampled, sampledAngle, type Viewport } from "./viewport";

export type Palette = Record<string, string>;

export interface Ink {
  context: CanvasRenderingContext2D;
  viewport: Viewport;
  palette: Palette;
  theme: Theme;
  ratio: number; // device pixels per pixel
  markScale: number; // size of dots and lines; small scenes have smaller ones
}

/** The trajectory of an agent: of a plan, or of another agent of a joint plan. */
export type Planned = Pick<PlanData, "agent" | "trajectory">;

export type Line = { x_m: number[]; y_m: number[] };

export function worldTransform({ context, viewport, ratio }: Ink): void {
  const scale = ratio * viewport.scale;
  context.setTransform(
    scale, 0, 0, -scale,
    ratio * (viewport.width / 2 - viewport.centre.x * viewport.scale),
    ratio * (viewport.height / 2 + viewport.centre.y * viewport.scale),
  ); // prettier-ignore
}

export function screenTransform({ context, ratio }: Ink): void {
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
}

export function clear(ink: Ink): void {
  screenTransform(ink);
  ink.context.fillStyle = ink.palette["ground"]!;
  ink.context.fillRect(0, 0, ink.viewport.width, ink.viewport.height);
}

export interface Box {
  x: number;
  y: number;
  heading: number;
  length: number;
  width: number;
}

/** Where a track is at a step; null if it was not observed. */
export function boxAt(track: Track, step: number): Box | null {
  const x = sampled(track.x_m, step);
  const y = sampled(track.y_m, step);
  const heading = sampledAngle(track.heading_rad, step);
  if (x === null || y === null || heading === null) return null;
  return { x, y, heading, length: track.length_m, width: track.width_m };
}

/** A road user: a box with a windscreen, or a disc for people on foot. */
export function drawBox(ink: Ink, box: Box, style: { colour: string; kind: string; isGhost?: boolean; isSelected?: boolean }): void {
  const { context, palette, viewport } = ink;
  worldTransform(ink);
  context.translate(box.x, box.y);
  context.rotate(box.heading);
  const small = 5 / viewport.scale;
  const length = Math.max(box.length, small);
  const width = Math.max(box.width, Math.min(small, length));
  const body = new Path2D();
  if (style.kind === "pedestrian") body.arc(0, 0, Math.max(0.45, small / 2), 0, 2 * Math.PI);
  else body.roundRect(-length / 2, -width / 2, length, width, Math.min(0.6, width / 3));
  if (style.isSelected) {
    const ring = new Path2D();
    ring.arc(0, 0, Math.max(length, width) / 2 + 5 / viewport.scale, 0, 2 * Math.PI);
    context.strokeStyle = palette["ego"]!;
    context.lineWidth = 2 / viewport.scale;
    context.stroke(ring);
    context.globalAlpha = 0.12;
    context.fillStyle = palette["ego"]!;
    context.fill(ring);
    context.globalAlpha = 1;
  }
  context.globalAlpha = style.isGhost ? 0.28 : 1;
  context.fillStyle = style.colour;
  context.fill(body);
  context.globalAlpha = 1;
  context.strokeStyle = style.isGhost ? style.colour : palette["halo"]!;
  context.lineWidth = 1 / viewport.scale;
  context.stroke(body);
  if (style.kind === "vehicle" && !style.isGhost && length * viewport.scale > 12) {
    context.fillStyle = palette["halo"]!;
    context.globalAlpha = 0.55;
    context.fillRect(length * 0.12, -width * 0.36, length * 0.13, width * 0.72);
    context.globalAlpha = 1;
  }
}

/** A line in the scene with a width in pixels. */
export function strokeLine(
  ink: Ink,
  line: Line,
  style: { colour: string; width: number; alpha?: number; dash?: number[]; casing?: boolean },
): void {
  const { context, viewport } = ink;
  screenTransform(ink);
  const path = new Path2D();
  line.x_m.forEach((x, index) => {
    const point = viewport.toScreen(x, line.y_m[index]!);
    if (index === 0) path.moveTo(point.x, point.y);
    else path.lineTo(point.x, point.y);
  });
  context.save();
  context.lineJoin = context.lineCap = "round";
  context.setLineDash(style.dash ?? []);
  if (style.casing) {
    context.strokeStyle = ink.palette["halo"]!;
    context.lineWidth = style.width * ink.markScale + 3;
    context.stroke(path);
  }
  context.globalAlpha = style.alpha ?? 1;
  context.strokeStyle = style.colour;
  context.lineWidth = style.width * ink.markScale;
  context.stroke(path);
  context.restore();
}

export function dot(ink: Ink, x: number, y: number, radius: number, colour: string, casing = true): void {
  const { context, viewport, palette } = ink;
  screenTransform(ink);
  const point = viewport.toScreen(x, y);
  context.beginPath();
  context.arc(point.x, point.y, radius * ink.markScale, 0, 2 * Math.PI);
  context.fillStyle = colour;
  context.fill();
  if (casing) {
    context.strokeStyle = palette["halo"]!;
    context.lineWidth = 1.5 * ink.markScale;
    context.stroke();
  }
}

/** The band of one standard deviation: the union of its ellipses along the plan. */
export function drawBand(ink: Ink, plan: Planned, headingNow: number, colour: string): void {
  const { context } = ink;
  const { x_m: xs, y_m: ys, std_along_m: along, std_across_m: across } = plan.trajectory;
  worldTransform(ink);
  const band = new Path2D();
  for (let index = 0; index < xs.length; index += 2) {
    const ellipse = new Path2D();
    ellipse.ellipse(xs[index]!, ys[index]!, along[index]!, across[index]!, headingNow, 0, 2 * Math.PI);
    band.addPath(ellipse);
  }
  context.globalAlpha = 0.13;
  context.fillStyle = colour;
  context.fill(band, "nonzero");
  context.globalAlpha = 1;
}

/** A plan: a line, and a dot for every second. */
export function drawPlan(ink: Ink, start: { x: number; y: number }, plan: Planned, colour: string, dt_s: number): void {
  const { x_m: xs, y_m: ys } = plan.trajectory;
  strokeLine(ink, { x_m: [start.x, ...xs], y_m: [start.y, ...ys] }, { colour, width: 3.5, casing: true });
  const every = Math.max(1, Math.round(1 / dt_s));
  for (let index = every - 1; index < xs.length - 1; index += every) dot(ink, xs[index]!, ys[index]!, 3, colour);
  dot(ink, xs.at(-1)!, ys.at(-1)!, 5, colour);
}

/** The candidate as each agent of a joint plan would drive it, the first agent's first. */
export function perAgent(candidate: Candidate): Candidate[] {
  return [candidate, ...candidate.others.map((other) => ({ ...candidate, ...other }))];
}

/** A candidate of the search in the colour of its rank; those that the gate rejected are grey and dashed. */
function drawCandidate(
  ink: Ink,
  start: { x: number; y: number },
  candidate: Candidate,
  count: number,
  style: { isHighlighted: boolean; alpha: number },
): void {
  const line = { x_m: [start.x, ...candidate.x_m], y_m: [start.y, ...candidate.y_m] };
  const isOut = candidate.is_rejected || !candidate.is_usable;
  const colour = isOut ? ink.palette["rejected"]! : costColour(rankShare(candidate.rank, count), ink.theme);
  strokeLine(ink, line, {
    colour,
    width: style.isHighlighted ? 4 : candidate.is_kept ? 3 : 1.8,
    alpha: style.isHighlighted ? 1 : style.alpha,
    dash: isOut ? [3, 4] : [],
    casing: style.isHighlighted,
  });
  dot(ink, candidate.x_m.at(-1)!, candidate.y_m.at(-1)!, style.isHighlighted ? 5 : candidate.is_kept ? 4 : 2.6, colour);
}

/** The trajectories of all agents of a plan. */
export function plansOf(plan: PlanData): Planned[] {
  return [plan, ...plan.others];
}

/** Where agents are now, by their ids; null where one is not there. */
export function startsOf(scene: SceneData, agents: string[]): (ReturnType<typeof boxAt> | null)[] {
  return agents.map((agent) => {
    const track = scene.tracks.find((one) => one.id === agent);
    return track ? boxAt(track, scene.current_step) : null;
  });
}

/** The candidate of each agent; of a joint plan paler, as there are several times as many lines. */
export function drawJointCandidate(
  ink: Ink,
  starts: ReturnType<typeof startsOf>,
  candidate: Candidate,
  count: number,
  style: { isHighlighted: boolean; alpha: number },
): void {
  const agents = perAgent(candidate);
  const alpha = agents.length > 1 && !style.isHighlighted ? 0.55 * style.alpha : style.alpha;
  for (const [index, one] of agents.entries()) {
    if (starts[index]) drawCandidate(ink, starts[index], one, count, { ...style, alpha });
  }
}

/** A letter in a disc: which agent of a joint plan this is. */
export function badge(ink: Ink, x: number, y: number, letter: string, colour: string): void {
  const { context, viewport, palette } = ink;
  screenTransform(ink);
  const point = viewport.toScreen(x, y);
  context.beginPath();
  context.arc(point.x, point.y, 8, 0, 2 * Math.PI);
  context.fillStyle = palette["halo"]!;
  context.fill();
  context.strokeStyle = colour;
  context.lineWidth = 2;
  context.stroke();
  context.font = "700 10px system-ui, sans-serif";
  context.textAlign = "center";
  context.fillStyle = palette["ink"]!;
  context.fillText(letter, point.x, point.y + 3.5);
}

/** The goal: a ring with a cross, big enough to grab. */
export function drawGoal(ink: Ink, goal: { x: number; y: number }, isGrabbed: boolean): void {
  const { context, viewport, palette } = ink;
  screenTransform(ink);
  const { x, y } = viewport.toScreen(goal.x, goal.y);
  const radius = isGrabbed ? 12 : 9;
  for (const [colour, width] of [
    [palette["halo"]!, 5],
    [palette["goal"]!, 2.5],
  ] as const) {
    context.strokeStyle = colour;
    context.lineWidth = width;
    context.beginPath();
    context.arc(x, y, radius, 0, 2 * Math.PI);
    for (const [dx, dy] of [[1, 0], [-1, 0], [0, 1], [0, -1]] as const) {
      context.moveTo(x + dx * (radius - 4), y + dy * (radius - 4));
      context.lineTo(x + dx * (radius + 4), y + dy * (radius + 4));
    }
    context.stroke();
  }
}

export function label(ink: Ink, x: number, y: number, text: string): void {
  const { context, viewport, palette } = ink;
  screenTransform(ink);
  const point = viewport.toScreen(x, y);
  context.font = "11px system-ui, sans-serif";
  context.textAlign = "center";
  context.lineJoin = "round";
  context.strokeStyle = palette["halo"]!;
  context.lineWidth = 3;
  context.strokeText(text, point.x, point.y - 10);
  context.fillStyle = palette["ink"]!;
  context.fillText(text, point.x, point.y - 10);
}

/** A bar of a round number of metres, at the lower right. */
export function drawScale(ink: Ink): void {
  const { context, viewport, palette } = ink;
  screenTransform(ink);
  const metres = [2, 5, 10, 20, 50, 100].find((length) => length * viewport.scale > 60) ?? 100;
  const right = viewport.width - 16;
  const left = right - metres * viewport.scale;
  const y = viewport.height - 14;
  context.strokeStyle = palette["faint_ink"]!;
  context.lineWidth = 1.5;
  context.beginPath();
  context.moveTo(left, y - 4);
  context.lineTo(left, y);
  context.lineTo(right, y);
  context.lineTo(right, y - 4);
  context.stroke();
  context.font = "11px system-ui, sans-serif";
  context.textAlign = "center";
  context.fillStyle = palette["faint_ink"]!;
  context.fillText(`${metres} m`, (left + right) / 2, y - 5);
}
