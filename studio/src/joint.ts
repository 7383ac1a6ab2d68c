/** Plans for several agents at once: who they are. */

import type { App } from "./app";
import { rowsToText } from "./objective";

/** Plans for several agents, beginning with the chosen one, or for that one alone again. */
export function setJoint(app: App, isJoint: boolean): void {
  if (isJoint === app.isJoint || !app.agent || (isJoint && !app.about.joint)) return;
  app.state = { ...app.state, agent: app.agent, agents: isJoint ? [app.agent] : [] };
  app.forgetPlans();
  app.setSpecObjective([], "");
  app.remember("push");
  app.changed("agent", "draws", "pinned", "objective", "plan");
  app.replan();
}

/** The lines of an agent that leaves a joint plan go with it. */
export function removeJointAgent(app: App, id: string): void {
  const agents = app.state.agents.filter((agent) => agent !== id);
  if (!agents.length) return setJoint(app, false);
  app.state = { ...app.state, agents, agent: app.agent === id ? agents[0]! : app.agent };
  app.forgetPlans();
  const rows = (app.rows ?? []).filter((row) => row.agent !== id);
  // A rule for all agents is none without a goal of one.
  const kept = rows.some((row) => !row.is_for_all) ? rows.map((row, index) => (index === 0 ? { ...row, joined: "first" as const } : row)) : [];
  app.setSpecObjective(kept, rowsToText(kept, app.known));
  app.remember("push");
  app.changed("agent", "draws", "pinned", "objective", "plan");
  app.replan();
}

/** Adds an agent to a joint plan, or chooses one that is in it. */
export function chooseJointAgent(app: App, id: string): void {
  const isNew = !app.state.agents.includes(id);
  if (isNew && app.state.agents.length >= app.about.limits.max_agents) {
    app.onNotice(`A joint plan has at most ${app.about.limits.max_agents} agents: remove one first`, "error");
    return;
  }
  app.state = { ...app.state, agent: id, agents: isNew ? [...app.state.agents, id] : app.state.agents };
  if (isNew) app.forgetPlans();
  app.remember("push");
  app.changed("agent", "draws", "pinned", "objective", "plan");
  if (isNew) app.replan();
}
