/** Codes that are carried from one scene or agent to another, and plans that are kept for comparison. */

import { server } from "./api";
import type { App } from "./app";

export interface CopiedCode {
  tokens: number[];
  levels: number;
  from: string;
}

const STORED = "copied-code"; // so that other tabs can paste it too

export function copyCode(app: App): void {
  const { plan, scene } = app;
  if (!plan?.tokens || !scene) return;
  keep(app, { tokens: plan.tokens, levels: plan.levels ?? 2, from: `${plan.agent} of ${scene.id}` });
  app.onNotice(`Copied the code ${plan.tokens.join(" ")}. Open another scene or agent and paste it there.`, "info");
}

/** Takes the code of what was recorded. */
export async function copyRecordedCode(app: App): Promise<void> {
  await app.guarded(async () => {
    const code = await server.encode({ ...app.choice(), levels: app.state.spec.settings.levels });
    keep(app, { ...code, from: `the recorded path of ${app.agent}` });
    app.setTokens(code.tokens, code.levels);
  });
}

export function pasteCode(app: App): void {
  const code = copiedCode(app);
  if (code) app.setTokens(code.tokens, code.levels);
}

/** The code that was copied last, here or in another tab; null if none fits the model that plans. */
export function copiedCode(app: App): CopiedCode | null {
  const code = app.copied ?? (JSON.parse(localStorage.getItem(STORED) ?? "null") as CopiedCode | null);
  return code && code.tokens.length <= app.model.num_tokens ? code : null;
}

function keep(app: App, code: CopiedCode): void {
  app.copied = code;
  localStorage.setItem(STORED, JSON.stringify(code));
  app.changed("code");
}

/** Keeps this plan and shows the next one beside it. */
export function pin(app: App): void {
  if (!app.plan) return;
  app.state = { ...app.state, pinned: structuredClone(app.state.spec) };
  app.pinnedPlan = app.plan;
  app.remember("push");
  app.changed("pinned");
}

export function unpin(app: App): void {
  app.state = { ...app.state, pinned: null };
  app.pinnedPlan = null;
  app.remember("push");
  app.changed("pinned");
}
