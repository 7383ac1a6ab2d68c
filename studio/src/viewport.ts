/** The visible part of the world: metres (x right, y up) to pixels (x right, y down) and back. */

export interface Point {
  x: number;
  y: number;
}

const MIN_SCALE = 0.6; // pixels per metre
const MAX_SCALE = 60;

export class Viewport {
  /** The middle of the canvas in metres, and pixels per metre. */
  constructor(
    public centre: Point = { x: 0, y: 0 },
    public scale = 7,
    public width = 1,
    public height = 1,
  ) {}

  toScreen(x: number, y: number): Point {
    return {
      x: this.width / 2 + (x - this.centre.x) * this.scale,
      y: this.height / 2 - (y - this.centre.y) * this.scale,
    };
  }

  toWorld(x: number, y: number): Point {
    return {
      x: this.centre.x + (x - this.width / 2) / this.scale,
      y: this.centre.y - (y - this.height / 2) / this.scale,
    };
  }

  /** Moves the world with the pointer. */
  pan(dx: number, dy: number): void {
    this.centre = { x: this.centre.x - dx / this.scale, y: this.centre.y + dy / this.scale };
  }

  /** Zooms so that the point under the pointer stays there. */
  zoomAt(x: number, y: number, factor: number): void {
    const fixed = this.toWorld(x, y);
    this.scale = Math.min(MAX_SCALE, Math.max(MIN_SCALE, this.scale * factor));
    const moved = this.toWorld(x, y);
    this.centre = { x: this.centre.x + fixed.x - moved.x, y: this.centre.y + fixed.y - moved.y };
  }

  /** Shows a circle around a point. */
  fit(centre: Point, radius: number): void {
    this.centre = { ...centre };
    this.scale = Math.min(MAX_SCALE, Math.max(MIN_SCALE, Math.min(this.width, this.height) / (2 * radius)));
  }

  /** Shows all of these points, and at least a circle of `radius` around their middle. */
  fitAll(points: Point[], radius: number): void {
    const middle = (values: number[]): number => (values.length ? (Math.min(...values) + Math.max(...values)) / 2 : 0);
    const centre = { x: middle(points.map((point) => point.x)), y: middle(points.map((point) => point.y)) };
    this.fit(centre, radius);
    const margin = 10; // metres
    const scales = points.map((point) =>
      Math.min(this.width / (2 * Math.abs(point.x - centre.x) + 2 * margin), this.height / (2 * Math.abs(point.y - centre.y) + 2 * margin)),
    );
    this.scale = Math.max(MIN_SCALE, Math.min(this.scale, ...scales));
  }
}

/** The value of a series between two steps; null where it was not observed. */
export function sampled(series: (number | null)[], step: number): number | null {
  const before = Math.floor(step);
  const first = series[before] ?? null;
  const share = step - before;
  if (share === 0 || first === null) return first;
  const second = series[before + 1] ?? null;
  return second === null ? first : first + share * (second - first);
}

/** The same of an angle, along the shorter way. */
export function sampledAngle(series: (number | null)[], step: number): number | null {
  const before = Math.floor(step);
  const first = series[before] ?? null;
  const second = series[before + 1] ?? null;
  if (first === null || second === null) return first;
  return first + (step - before) * wrapped(second - first);
}

export function wrapped(angle: number): number {
  return angle - 2 * Math.PI * Math.round(angle / (2 * Math.PI));
}

/** Whether a point lies in a box that is turned by its heading, with a margin around it. */
export function inBox(
  point: Point,
  box: { x: number; y: number; heading: number; length: number; width: number },
  margin: number,
): boolean {
  const dx = point.x - box.x;
  const dy = point.y - box.y;
  const ahead = dx * Math.cos(box.heading) + dy * Math.sin(box.heading);
  const left = -dx * Math.sin(box.heading) + dy * Math.cos(box.heading);
  return Math.abs(ahead) <= box.length / 2 + margin && Math.abs(left) <= box.width / 2 + margin;
}

/** Distance from a point to a polyline. */
export function distanceTo(point: Point, xs: number[], ys: number[]): number {
  let nearest = Infinity;
  for (let index = 0; index + 1 < xs.length; index++) {
    const x = xs[index]!;
    const y = ys[index]!;
    const dx = xs[index + 1]! - x;
    const dy = ys[index + 1]! - y;
    const squared = dx * dx + dy * dy;
    const share = squared === 0 ? 0 : Math.min(1, Math.max(0, ((point.x - x) * dx + (point.y - y) * dy) / squared));
    nearest = Math.min(nearest, Math.hypot(point.x - x - share * dx, point.y - y - share * dy));
  }
  return nearest;
}
