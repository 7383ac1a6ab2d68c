/** Colours of costs: viridis, which grows evenly in lightness and is told apart with any colour vision. */

const STOPS: [number, number, number][] = [
  [68, 1, 84],
  [72, 40, 120],
  [62, 74, 137],
  [49, 104, 142],
  [38, 130, 142],
  [31, 158, 137],
  [53, 183, 121],
  [110, 206, 88],
  [181, 222, 43],
  [253, 231, 37],
];

export type Theme = "light" | "dark";

/** The colour of a share in [0, 1], where 0 is the best: it contrasts most with the ground. */
export function costColour(share: number, theme: Theme): string {
  // The ends that would vanish in the ground are left out: pale yellow by day, deep violet by night.
  const place = theme === "light" ? 0.88 * clamped(share) : 1 - 0.8 * clamped(share);
  const position = place * (STOPS.length - 1);
  const index = Math.min(STOPS.length - 2, Math.floor(position));
  const rest = position - index;
  const [from, to] = [STOPS[index]!, STOPS[index + 1]!];
  const mixed = from.map((value, channel) => Math.round(value + rest * (to[channel]! - value)));
  return `rgb(${mixed.join(", ")})`;
}

/** The colour of a rank among so many candidates. Ranks, not costs: lexicographic costs have no common scale. */
export function rankShare(rank: number, count: number): number {
  return count <= 1 ? 0 : rank / (count - 1);
}

function clamped(share: number): number {
  return Math.min(1, Math.max(0, share));
}
