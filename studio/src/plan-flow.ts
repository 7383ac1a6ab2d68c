/** Asks for plans and takes them in; what is answered late, or for other agents, is dropped. */

import { LivePlanner, server, ServerError, type PlanData } from "./api";
import type { App } from "./app";
import { emptySpec } from "./permalink";

const LATENCIES_KEPT = 200;

export class PlanFlow {
  readonly latencies_ms: number[] = []; // from a pointer that moves the goal to the drawn plan, the last ones
  isGoalMoving = false;
  private readonly live: LivePlanner;
  private decodeNumber = 0;

  constructor(private readonly app: App) {
    this.live = new LivePlanner({
      onPlan: (plan, began) => this.receive(plan, began),
      onProblem: (message) => this.fail(message),
    });
  }

  /** Plans anew. `began` is when the user asked for it. */
  replan(began: number): void {
    const { app } = this;
    if (!app.scene || !app.agent) return;
    const { spec } = app.state;
    app.highlighted = null;
    if (spec.tokens) {
      const { tokens, settings } = spec;
      return void this.decode(() => server.decode({ ...app.choice(), tokens, levels: settings.levels }), began);
    }
    if (spec.objective && !app.objectiveProblem) {
      this.decodeNumber++; // what is being decoded does not count any more
      return this.live.request(app.request(), began);
    }
    if (!spec.objective && app.model.has_prior) return void this.decode(() => this.expected(), began);
    app.plan = null;
    app.changed("plan");
  }

  /** Without an objective: what the model expects. There are too many joint codes to rate them all: a search. */
  private async expected(): Promise<PlanData> {
    const { app } = this;
    if (app.isJoint) return { ...(await server.plan({ ...app.request(emptySpec()), objective: "likelihood", with_search: false })), objective: null };
    const { plans } = await server.draw({ ...app.choice(), how: "most-likely", count: 1, seed: 0, temperature: 1 });
    return plans[0]!;
  }

  private async decode(ask: () => Promise<PlanData>, began: number): Promise<void> {
    const number = ++this.decodeNumber;
    this.live.forget();
    try {
      const plan = await ask();
      if (number === this.decodeNumber) this.receive(plan, began);
    } catch (error) {
      if (!(error instanceof ServerError)) throw error;
      if (number === this.decodeNumber) this.fail(error.message);
    }
  }

  private receive(plan: PlanData, began: number): void {
    const { app } = this;
    if ([plan.agent, ...plan.others.map((other) => other.agent)].join("\n") !== app.planned.join("\n")) return; // of other agents
    this.decodeNumber++;
    app.plan = plan;
    app.planProblem = null;
    app.prefixPlans = [];
    app.changed("plan");
    if (plan.search.length === 0 && plan.tokens) void this.decodePrefixes(plan, plan.tokens);
    if (this.isGoalMoving) {
      requestAnimationFrame(() => {
        this.latencies_ms.push(performance.now() - began);
        this.latencies_ms.splice(0, this.latencies_ms.length - LATENCIES_KEPT);
      });
    }
  }

  private async decodePrefixes(plan: PlanData, tokens: number[]): Promise<void> {
    const { app } = this;
    const levels = plan.levels ?? 2;
    const shorter = tokens.slice(1).map((_, index) => server.decode({ ...app.choice(), tokens: tokens.slice(0, index + 1), levels }));
    await app.guarded(async () => {
      const plans = [...(await Promise.all(shorter)), plan];
      if (app.plan !== plan) return; // there is another plan meanwhile
      app.prefixPlans = plans;
      app.changed("plan");
    });
  }

  private fail(message: string): void {
    this.app.plan = null;
    this.app.planProblem = message;
    this.app.changed("plan");
  }
}
