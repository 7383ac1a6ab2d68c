/** The plan in numbers: status, costs, certainty, likelihood, timings; beside those of the pinned plan. */

import type { PlanData } from "../api";
import type { App } from "../app";
import { copiedCode, copyCode, copyRecordedCode, pasteCode } from "../codes";
import { fill, h } from "../dom";

const STATUS: Record<PlanData["status"], [string, string]> = {
  found: ["Found", "good"],
  violated: ["Violated", "bad"],
  uncertain: ["Uncertain", "warn"],
  deadline: ["Deadline", "warn"],
  "no-cost": ["No cost", "bad"],
};

export function resultPanel(app: App): HTMLElement {
  const body = h("div", { class: "result", "aria-live": "polite" });
  const update = (): void => {
    const { plan, pinnedPlan } = app;
    if (app.planProblem) return fill(body, h("p", { class: "problem", role: "alert" }, app.planProblem));
    if (!plan) return fill(body, h("p", { class: "faint" }, app.agent ? "No plan yet." : "Click a road user to plan for it."));
    // "Found" only says that the search ended: whether the plan does what was asked is the objective's to say.
    const achieved: [string, string] = plan.satisfied ? ["Satisfied", "good"] : ["Not satisfied", "warn"];
    const [word, tone] = plan.status === "found" && plan.satisfied !== null ? achieved : STATUS[plan.status];
    fill(
      body,
      h("p", { class: "status" }, h("span", { class: `pill ${tone}` }, word), h("span", {}, sentence(app, plan))),
      table(app, plan, pinnedPlan),
    );
    body.dataset["status"] = plan.status;
  };
  app.listen(["plan", "pinned", "scene", "objective"], update);
  update();
  const copy = h("button", { class: "small", onclick: () => copyCode(app), title: "Copy the tokens of this plan" }, "Copy code");
  const paste = h("button", { class: "small", onclick: () => pasteCode(app) }, "Paste code");
  const recorded = h("button", { class: "small", onclick: () => void copyRecordedCode(app), title: "The tokens of what was recorded" }, "Recorded code");
  const again = h("button", { class: "small", onclick: () => app.setTokens(null) }, "Search again");
  const updateCode = (): void => {
    copy.disabled = !app.plan?.tokens;
    const copied = copiedCode(app);
    paste.disabled = !copied;
    paste.title = copied ? `Decode ${copied.tokens.join(" ")} of ${copied.from} here` : "Copy a code first";
    again.hidden = app.state.spec.tokens === null;
  };
  app.listen(["plan", "code", "objective", "scene", "agent"], updateCode);
  updateCode();
  return h(
    "section",
    { class: "card" },
    h("div", { class: "card-head" }, h("h2", {}, "Plan"), h("span", { class: "faint agent-name" }, agentName(app))),
    body,
    h("div", { class: "buttons" }, copy, paste, recorded, again),
  );
}

function agentName(app: App): HTMLElement {
  const name = h("span", {});
  const update = (): void => {
    const track = app.scene?.tracks.find((one) => one.id === app.agent);
    name.textContent = app.isJoint ? `${app.planned.length} agents, one code` : track ? `${track.id} · ${track.kind}` : "";
  };
  app.listen(["agent", "scene"], update);
  update();
  return name;
}

function sentence(app: App, plan: PlanData): string {
  if (app.state.spec.tokens) return "decoded from tokens chosen by hand";
  if (plan.objective === null) return "what the model expects, without an objective";
  return withLetters(app, plan.message);
}

/** Agents of a joint plan by their letters: their ids are long. */
function withLetters(app: App, text: string): string {
  return [...app.state.agents]
    .sort((one, other) => other.length - one.length) // an id may begin with another
    .reduce((shown, agent) => shown.replaceAll(`agent(${agent})`, app.letterOf(agent)!).replaceAll(agent, app.letterOf(agent)!), text);
}

function table(app: App, plan: PlanData, pinned: PlanData | null): HTMLElement {
  const names = new Set([...Object.keys(plan.costs), ...Object.keys(pinned?.costs ?? {})]);
  const rows: [string, (one: PlanData) => string][] = [
    ...[...names].map((name): [string, (one: PlanData) => string] => [name, (one) => costText(one.costs[name])]),
    ["final std", (one) => `${one.final_std_m.toFixed(2)} m`],
    ["log likelihood", (one) => (one.log_probability === null ? "–" : one.log_probability.toFixed(2))],
    ["decodes", (one) => String(one.num_decodes)],
    ["time", (one) => `${Object.entries(one.timings_ms).filter(([name]) => name !== "encode").reduce((sum, [, value]) => sum + value, 0).toFixed(0)} ms`],
  ];
  return h(
    "table",
    { class: "numbers" },
    pinned && h("thead", {}, h("tr", {}, h("td", {}), h("th", { class: "pinned" }, "pinned"), h("th", { class: "planned" }, "this"))),
    h(
      "tbody",
      {},
      ...rows.map(([name, value]) => h("tr", {}, h("th", { scope: "row" }, withLetters(app, name)), pinned && h("td", {}, value(pinned)), h("td", {}, value(plan)))),
    ),
  );
}

function costText(cost: number | null | undefined): string {
  if (cost === undefined) return "–";
  return cost === null ? "∞" : String(Number(cost.toPrecision(3)));
}

/** How long it took from moving the goal to seeing the plan. */
export function latencyLine(app: App): HTMLElement {
  const line = h("p", { class: "latency faint", title: "From moving the goal to the drawn plan, measured here" });
  const update = (): void => {
    const [middle, high] = [quantile(app.flow.latencies_ms, 0.5), quantile(app.flow.latencies_ms, 0.95)];
    line.textContent = middle === null ? "" : `drag to plan ${middle.toFixed(0)} ms, p95 ${high!.toFixed(0)} ms`;
    line.hidden = middle === null;
  };
  app.listen(["plan"], update);
  return line;
}

/** A quantile of some numbers; null if there are none. */
function quantile(values: number[], share: number): number | null {
  if (!values.length) return null;
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.floor(share * sorted.length))]!;
}
