import { describe, expect, it } from "vitest";

import type { ObjectiveInfo, ObjectiveRow } from "../src/api";
import { digitsOf, idOf, toggled } from "../src/code";
import { goalsOf, newRowFor, rowsToText, withGoal } from "../src/objective";
import { DEFAULT_SETTINGS, DEFAULT_SHOWN, decodeState, encodeState, type PageState } from "../src/permalink";
import { costColour, rankShare } from "../src/ramp";
import { distanceTo, inBox, sampled, sampledAngle, Viewport } from "../src/viewport";

function parameter(name: string, kind: string, required = false, positional = true) {
  return { name, kind, unit: null, default: null, required, positional, choices: [], in_text: true };
}

const KNOWN = new Map<string, ObjectiveInfo>([
  [
    "goal-point",
    {
      name: "goal-point",
      summary: "",
      differentiable: true, only_joint: false,
      parameters: [
        parameter("x_m", "number", true),
        parameter("y_m", "number", true),
        parameter("at_s", "number", false, false),
        parameter("frame", "scene or agent", false, false),
      ],
    },
  ],
  ["comfort", { name: "comfort", summary: "", differentiable: true, only_joint: false, parameters: [] }],
  [
    "speed-profile",
    {
      name: "speed-profile",
      summary: "",
      differentiable: true, only_joint: false,
      parameters: [parameter("times_s", "list of numbers", true), parameter("speeds_mps", "list of numbers", true)],
    },
  ],
]);

const goalRow: ObjectiveRow = { joined: "first", weight: 1, agent: null, is_for_all: false, name: "goal-point", arguments: { x_m: 3, y_m: -4.5 } };

describe("tokens as digits", () => {
  it("goes to digits and back for every token of two and three levels", () => {
    for (const levels of [2, 3]) {
      for (let id = 0; id < levels ** 3; id++) expect(idOf(digitsOf(id, levels, 3), levels)).toBe(id);
    }
  });

  it("has the first dimension first, as the codebook", () => {
    expect(digitsOf(6, 2, 3)).toEqual([1, 1, 0]);
    expect(toggled(6, 0, 2, 3)).toBe(2);
    expect(toggled(6, 2, 2, 3)).toBe(7);
    expect(toggled(2, 2, 3, 3)).toBe(0); // the last level goes on with the first
  });
});

describe("objectives", () => {
  it("writes lines as text that the parser reads", () => {
    const rows: ObjectiveRow[] = [
      { ...goalRow, weight: 2 },
      { joined: "+", weight: 1, agent: null, is_for_all: false, name: "comfort", arguments: {} },
      { joined: "then", weight: 1, agent: null, is_for_all: false, name: "speed-profile", arguments: { times_s: [0, 8], speeds_mps: [5, 2.5] } },
      { joined: "where", weight: 1, agent: null, is_for_all: false, name: "goal-point", arguments: { x_m: 1, y_m: 2, at_s: 4 } },
    ];
    expect(rowsToText(rows, KNOWN)).toBe(
      "2 * goal-point(3, -4.5) + comfort then speed-profile([0, 8], [5, 2.5]) where goal-point(1, 2, at_s=4)",
    );
  });

  it("moves the goal of the line that has one, and replaces lines that have none", () => {
    const rows: ObjectiveRow[] = [{ joined: "first", weight: 1, agent: null, is_for_all: false, name: "comfort", arguments: {} }, { ...goalRow, joined: "+" }];
    expect(goalsOf(withGoal(rows, { x: 7.123, y: 8 }, KNOWN), KNOWN)).toEqual([{ agent: null, x: 7.12, y: 8 }]);
    expect(withGoal(rows, { x: 7, y: 8 }, KNOWN)).toHaveLength(2);
    expect(rowsToText(withGoal([rows[0]!], { x: 7, y: 8 }, KNOWN), KNOWN)).toBe("goal-point(7, 8)");
    expect(rowsToText(withGoal(null, { x: 7, y: 8 }, KNOWN), KNOWN)).toBe("goal-point(7, 8)");
  });

  it("gives every agent of a joint plan a goal of its own", () => {
    const first = withGoal([], { x: 1, y: 2 }, KNOWN, "a.1");
    expect(rowsToText(first, KNOWN)).toBe("agent(a.1): goal-point(1, 2) + all: no-collision");
    const both = withGoal(first, { x: 3, y: 4 }, KNOWN, "b");
    expect(goalsOf(both, KNOWN)).toEqual([{ agent: "a.1", x: 1, y: 2 }, { agent: "b", x: 3, y: 4 }]);
    expect(rowsToText(withGoal(both, { x: 5, y: 6 }, KNOWN, "a.1"), KNOWN)).toBe(
      "agent(a.1): goal-point(5, 6) + agent(b): goal-point(3, 4) + all: no-collision",
    );
  });

  it("does not take a point in the agent's frame for one of the scene", () => {
    expect(goalsOf([{ ...goalRow, arguments: { ...goalRow.arguments, frame: "agent" } }], KNOWN)).toEqual([]);
  });

  it("gives a new line what the parser insists on", () => {
    expect(newRowFor(KNOWN.get("goal-point")!, "+", { x: 1.04, y: 2 }).arguments).toEqual({ x_m: 1, y_m: 2 });
    expect(newRowFor(KNOWN.get("speed-profile")!, "+", { x: 0, y: 0 }).arguments).toEqual({
      times_s: [0, 8],
      speeds_mps: [5, 5],
    });
  });
});

describe("the address", () => {
  const state: PageState = {
    dataset: "data/of mine",
    scene: 12,
    agent: "car & trailer",
    agents: ["car & trailer", "a,b"],
    spec: {
      objective: "2 * goal-point(10, 3) + comfort where road-edge",
      tokens: [5, 0, 7],
      settings: { beam_width: 4, depth: 2, levels: 3, gate: false, refine_steps: 5, deadline_s: 0.05 },
    },
    pinned: { objective: "left-turn", tokens: null, settings: { ...DEFAULT_SETTINGS } },
    time_s: 2.5,
    view: { x: 1.5, y: -2, scale: 9 },
    tab: "prior",
    draws: { how: "samples", count: 24, seed: 3, temperature: 0.7 },
    drive: { driver: "pdm-closed", traffic: "idm" },
    shown: { candidates: 2, band: false, recorded: false, names: true },
  };

  it("keeps the whole state", () => {
    expect(decodeState(`#${encodeState(state)}`)).toEqual(state);
  });

  it("keeps a pinned plan of nothing apart from no pinned plan", () => {
    const nothing = { ...state, pinned: { objective: "", tokens: null, settings: { ...DEFAULT_SETTINGS } } };
    expect(decodeState(encodeState(nothing))).toEqual(nothing);
    expect(decodeState(encodeState({ ...state, pinned: null }))!.pinned).toBeNull();
  });

  it("leaves out what has its default", () => {
    const plain: PageState = {
      ...state,
      spec: { objective: "left-turn", tokens: null, settings: { ...DEFAULT_SETTINGS } },
      pinned: null,
      agent: null,
      agents: [],
      time_s: 0,
      view: null,
      tab: "plan",
      draws: null,
      drive: null,
      shown: { ...DEFAULT_SHOWN },
    };
    expect(encodeState(plain)).toBe("scene=data%2Fof+mine%2F12&objective=left-turn");
  });

  it("refuses addresses without a scene and mends numbers that are out of range", () => {
    expect(decodeState("")).toBeNull();
    expect(decodeState("#scene=sumo")).toBeNull();
    expect(decodeState("#scene=sumo/-1")).toBeNull();
    const mended = decodeState("#scene=sumo/1&beam=1000&levels=x&tokens=1.x&view=1,2&depth=0&deadline=99")!;
    expect(mended.spec.settings).toEqual({ ...DEFAULT_SETTINGS, beam_width: 64, depth: 1, deadline_s: 10 });
    expect(mended.spec.tokens).toBeNull();
    expect(mended.view).toBeNull();
  });
});

describe("the viewport", () => {
  const viewport = () => new Viewport({ x: 10, y: 20 }, 5, 400, 300);

  it("goes to the screen and back", () => {
    const point = viewport().toScreen(12, 18);
    expect(point).toEqual({ x: 210, y: 160 });
    expect(viewport().toWorld(point.x, point.y)).toEqual({ x: 12, y: 18 });
  });

  it("keeps the point under the pointer while zooming, within bounds", () => {
    const zoomed = viewport();
    const before = zoomed.toWorld(50, 60);
    zoomed.zoomAt(50, 60, 1.7);
    expect(zoomed.scale).toBeCloseTo(8.5);
    expect(zoomed.toWorld(50, 60).x).toBeCloseTo(before.x);
    expect(zoomed.toWorld(50, 60).y).toBeCloseTo(before.y);
    zoomed.zoomAt(0, 0, 1e9);
    expect(zoomed.scale).toBe(60);
  });

  it("interpolates between steps, along the shorter way for angles", () => {
    expect(sampled([0, 2, null], 0.5)).toBe(1);
    expect(sampled([0, 2, null], 1.5)).toBe(2);
    expect(sampled([null, 2], 0.5)).toBeNull();
    expect(sampledAngle([3.1, -3.1], 0.5)).toBeCloseTo(Math.PI, 1);
  });

  it("finds what is under the pointer", () => {
    const box = { x: 0, y: 0, heading: Math.PI / 2, length: 4, width: 2 };
    expect(inBox({ x: 0, y: 1.9 }, box, 0)).toBe(true);
    expect(inBox({ x: 1.9, y: 0 }, box, 0)).toBe(false);
    expect(inBox({ x: 1.9, y: 0 }, box, 1)).toBe(true);
    expect(distanceTo({ x: 1, y: 1 }, [0, 2], [0, 0])).toBe(1);
    expect(distanceTo({ x: 3, y: 0 }, [0, 2], [0, 0])).toBe(1);
  });
});

describe("colours of costs", () => {
  const lightness = (colour: string) =>
    colour.match(/\d+/g)!.map(Number).reduce((sum, value, channel) => sum + value * [0.2126, 0.7152, 0.0722][channel]!, 0);

  it("grow evenly lighter by day and darker by night, away from the best", () => {
    const shares = [0, 0.25, 0.5, 0.75, 1];
    const day = shares.map((share) => lightness(costColour(share, "light")));
    const night = shares.map((share) => lightness(costColour(share, "dark")));
    expect([...day].sort((a, b) => a - b)).toEqual(day);
    expect([...night].sort((a, b) => b - a)).toEqual(night);
  });

  it("spread ranks over the whole ramp", () => {
    expect([0, 7].map((rank) => rankShare(rank, 8))).toEqual([0, 1]);
    expect(rankShare(0, 1)).toBe(0);
  });
});
