/** Who is planned for: one road user, or several at once by the joint model. */

import type { App } from "../app";
import { fill, h, icon } from "../dom";
import { removeJointAgent, setJoint } from "../joint";

export function agentsPanel(app: App): HTMLElement {
  const body = h("div", { class: "agents" });
  const toggle = h("button", {
    class: "small",
    onclick: () => {
      if (app.about.joint) return setJoint(app, !app.isJoint);
      reason.hidden = !reason.hidden;
    },
  });
  const reason = h("p", { class: "problem", role: "status", hidden: true }, app.about.joint_problem ?? "");
  const update = (): void => {
    const kind = app.scene?.tracks.find((track) => track.id === app.agent)?.kind ?? "";
    fill(toggle, app.isJoint ? "One agent" : "Several agents");
    toggle.title = app.isJoint ? "Plan for the chosen agent alone" : "Plan for several road users at once, from one code";
    toggle.disabled = app.agent === null;
    if (!app.isJoint) return fill(body, h("p", { class: "faint" }, app.agent ? `${app.agent} · ${kind}` : "Click a road user to plan for it."));
    fill(body, ...app.state.agents.map((agent) => chip(app, agent)), h("p", { class: "faint" }, hint(app)));
  };
  app.listen(["agent", "scene", "objective"], update);
  update();
  return h("section", { class: "card agents-card" }, h("div", { class: "card-head" }, h("h2", {}, "Agents"), toggle), body, reason);
}

function chip(app: App, agent: string): HTMLElement {
  const isChosen = agent === app.agent;
  return h(
    "span",
    { class: isChosen ? "agent-chip chosen" : "agent-chip" },
    h(
      "button",
      { class: "quiet small", "aria-pressed": String(isChosen), title: "A click on the road sets the goal of this agent", onclick: () => app.chooseAgent(agent) },
      h("b", {}, app.letterOf(agent)),
      h("span", {}, agent),
    ),
    h("button", { class: "quiet square small", "aria-label": `Remove ${agent}`, onclick: () => removeJointAgent(app, agent) }, icon("close")),
  );
}

function hint(app: App): string {
  if (app.state.agents.length === 1) return "Click other road users to add them.";
  return app.state.agents.length < app.about.limits.max_agents ? "Click the road for a goal of the chosen agent, a road user to add it." : "Click the road for a goal of the chosen agent.";
}
