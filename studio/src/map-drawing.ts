/** The map of a scene on a canvas, in metres: roads, paint, crosswalks, signs and lights. */

import type { SceneData } from "./api";
import { clear, worldTransform, type Ink, type Line } from "./drawing";

function trace(path: Path2D, line: Line, close = false): void {
  line.x_m.forEach((x, index) => (index === 0 ? path.moveTo(x, line.y_m[0]!) : path.lineTo(x, line.y_m[index]!)));
  if (close) path.closePath();
}

function pathOf(lines: Line[], close = false): Path2D {
  const path = new Path2D();
  for (const line of lines) trace(path, line, close);
  return path;
}

/** The map as a picture that is made anew only when the view, the theme or a light changes: most frames move other things. */
export class MapLayer {
  private readonly picture = document.createElement("canvas");
  private paths: MapPaths | null = null;
  private scene: SceneData | null = null;
  private shown = "";

  draw(ink: Ink, scene: SceneData, step: number, detail: "full" | "faint"): void {
    const { viewport, theme, ratio } = ink;
    if (this.scene !== scene || !this.paths) {
      this.paths = new MapPaths(scene);
      this.scene = scene;
      this.shown = "";
    }
    const lights = detail === "full" ? scene.signals.map((signal) => signalAt(signal, step)) : [];
    const wanted = [theme, ratio, viewport.width, viewport.height, viewport.scale, viewport.centre.x, viewport.centre.y, ...lights].join(" ");
    if (wanted !== this.shown) {
      this.picture.width = Math.round(viewport.width * ratio);
      this.picture.height = Math.round(viewport.height * ratio);
      const layer = { ...ink, context: this.picture.getContext("2d")! };
      clear(layer);
      this.paths.draw(layer, step, detail);
      this.shown = wanted;
    }
    ink.context.setTransform(1, 0, 0, 1, 0, 0);
    ink.context.drawImage(this.picture, 0, 0);
  }
}

function signalAt(signal: SceneData["signals"][number], step: number): string {
  return signal.states[Math.min(signal.states.length - 1, Math.round(step))] ?? "unknown";
}

/** The static map of a scene, traced once. */
class MapPaths {
  private readonly lanes = new Map<number, { road: Path2D; bike: Path2D; route: Path2D }>();
  private readonly paint: { path: Path2D; yellow: boolean; style: string }[];
  private readonly edges: Path2D;
  private readonly areas: Path2D;
  private readonly driveways: Path2D;
  private readonly bumps: Path2D;
  private readonly crosswalks: { outline: Path2D; axis: Path2D; width: number }[];

  constructor(private readonly scene: SceneData) {
    const { map } = scene;
    for (const lane of map.lanes) {
      const width = Math.round(lane.width_m * 10) / 10;
      let paths = this.lanes.get(width);
      if (!paths) this.lanes.set(width, (paths = { road: new Path2D(), bike: new Path2D(), route: new Path2D() }));
      trace(lane.is_bike ? paths.bike : paths.road, lane);
      if (lane.on_route) trace(paths.route, lane);
    }
    this.paint = map.road_lines.map((line) => ({ path: pathOf([line]), yellow: line.colour === "yellow", style: line.style }));
    this.edges = pathOf(map.road_edges);
    this.areas = pathOf(map.drivable_areas, true);
    this.driveways = pathOf(map.driveways, true);
    this.bumps = pathOf(map.speed_bumps, true);
    this.crosswalks = map.crosswalks.map(crosswalk);
  }

  draw(ink: Ink, step: number, detail: "full" | "faint"): void {
    const { context, palette } = ink;
    worldTransform(ink);
    context.lineJoin = "round";
    context.fillStyle = palette["driveway"]!;
    context.fill(this.driveways);
    context.fillStyle = context.strokeStyle = palette["asphalt"]!;
    context.fill(this.areas);
    for (const [width, { road }] of this.lanes) {
      context.lineWidth = width + 0.8; // closes the seams between neighbouring lanes
      context.stroke(road);
    }
    context.strokeStyle = palette["bike_lane"]!;
    for (const [width, { bike }] of this.lanes) {
      context.lineWidth = width;
      context.stroke(bike);
    }
    if (detail === "full") {
      this.drawRoute(ink);
      this.drawPaint(ink);
    }
    context.strokeStyle = palette["road_edge"]!;
    context.lineWidth = Math.max(0.22, 0.8 / ink.viewport.scale);
    context.stroke(this.edges);
    if (detail === "full") {
      this.drawSigns(ink);
      this.drawSignals(ink, step);
    }
  }

  private drawRoute({ context, palette }: Ink): void {
    context.save();
    context.strokeStyle = palette["route"]!;
    context.globalAlpha = 0.3;
    for (const [width, { route }] of this.lanes) {
      context.lineWidth = width * 0.9;
      context.stroke(route);
    }
    context.restore();
  }

  private drawPaint({ context, palette, viewport }: Ink): void {
    const thin = Math.max(0.16, 0.7 / viewport.scale);
    context.save();
    for (const { outline, axis, width } of this.crosswalks) {
      context.save();
      context.fillStyle = palette["asphalt"]!;
      context.fill(outline);
      context.clip(outline);
      context.strokeStyle = palette["white_paint"]!;
      context.globalAlpha = 0.85;
      context.lineWidth = width;
      context.setLineDash([0.55, 0.55]); // dashes of a line as wide as the crosswalk are its stripes
      context.stroke(axis);
      context.restore();
    }
    context.fillStyle = palette["speed_bump"]!;
    context.globalAlpha = 0.4;
    context.fill(this.bumps);
    context.globalAlpha = 0.9;
    for (const { path, yellow, style } of this.paint) {
      const isDouble = style.startsWith("double");
      context.setLineDash(style.endsWith("broken") ? [3, 4.5] : []);
      context.strokeStyle = palette[yellow ? "yellow_paint" : "white_paint"]!;
      context.lineWidth = isDouble ? 3 * thin : thin;
      context.stroke(path);
      if (isDouble) {
        context.strokeStyle = palette["asphalt"]!;
        context.lineWidth = thin;
        context.stroke(path);
      }
    }
    context.restore();
  }

  private drawSigns({ context, palette, viewport }: Ink): void {
    const { x_m: xs, y_m: ys } = this.scene.map.stop_signs;
    const radius = Math.max(1.1, 4 / viewport.scale);
    xs.forEach((x, index) => {
      const octagon = new Path2D();
      for (let corner = 0; corner < 8; corner++) {
        const angle = ((corner + 0.5) * Math.PI) / 4;
        octagon.lineTo(x + radius * Math.cos(angle), ys[index]! + radius * Math.sin(angle));
      }
      octagon.closePath();
      context.fillStyle = palette["stop_sign"]!;
      context.fill(octagon);
      context.strokeStyle = palette["white_paint"]!;
      context.lineWidth = radius / 5;
      context.stroke(octagon);
    });
  }

  private drawSignals({ context, palette, viewport }: Ink, step: number): void {
    const thick = Math.max(0.8, 3 / viewport.scale);
    for (const signal of this.scene.signals) {
      const state = signalAt(signal, step);
      const half = Math.max(0.8, signal.width_m / 2 - 0.5);
      const [across, along] = [-Math.sin(signal.heading_rad) * half, Math.cos(signal.heading_rad) * half];
      context.beginPath();
      context.moveTo(signal.x_m + across, signal.y_m + along);
      context.lineTo(signal.x_m - across, signal.y_m - along);
      context.lineCap = "round";
      context.strokeStyle = palette["ground"]!;
      context.lineWidth = thick * 1.5;
      context.stroke();
      context.strokeStyle = palette[`signal_${state}`]!;
      context.lineWidth = thick;
      context.stroke();
    }
    context.lineCap = "butt";
  }
}

/** A crosswalk as its outline and the line along which people walk. */
function crosswalk(polygon: Line): { outline: Path2D; axis: Path2D; width: number } {
  const { x_m: xs, y_m: ys } = polygon;
  let [longest, angle] = [0, 0];
  xs.forEach((x, index) => {
    const next = (index + 1) % xs.length;
    const length = Math.hypot(xs[next]! - x, ys[next]! - ys[index]!);
    if (length > longest) [longest, angle] = [length, Math.atan2(ys[next]! - ys[index]!, xs[next]! - x)];
  });
  const along = xs.map((x, index) => x * Math.cos(angle) + ys[index]! * Math.sin(angle));
  const across = xs.map((x, index) => -x * Math.sin(angle) + ys[index]! * Math.cos(angle));
  const [first, last] = [Math.min(...along), Math.max(...along)];
  const [right, left] = [Math.min(...across), Math.max(...across)];
  const middle = (right + left) / 2;
  const at = (distance: number) => ({
    x: distance * Math.cos(angle) - middle * Math.sin(angle),
    y: distance * Math.sin(angle) + middle * Math.cos(angle),
  });
  const axis = new Path2D();
  axis.moveTo(at(first + 0.25).x, at(first + 0.25).y);
  axis.lineTo(at(last).x, at(last).y);
  return { outline: pathOf([polygon], true), axis, width: left - right };
}
