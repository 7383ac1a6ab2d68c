/** Puts the page together: header, scenes, canvas, panels and the keyboard. */

import { server, ServerError } from "./api";
import { App } from "./app";
import { fill, h, icon } from "./dom";
import { agentsPanel } from "./panels/agents";
import { drivePanel } from "./panels/drive";
import { header } from "./panels/header";
import { clearObjective, objectivePanel, settingsPanel } from "./panels/objective";
import { playback, togglePlay } from "./panels/playback";
import { priorPanel } from "./panels/prior";
import { latencyLine, resultPanel } from "./panels/result";
import { sceneBrowser } from "./panels/scenes";
import { searchDock } from "./panels/search-dock";
import type { PageState } from "./permalink";
import { SceneCanvas, type Frame } from "./scene-canvas";

const TABS: [PageState["tab"], string][] = [
  ["plan", "Plan"],
  ["prior", "Prior"],
  ["drive", "Drive"],
];

function page(app: App): HTMLElement {
  const look = () => ({ palette: app.palette, theme: app.theme });
  const listener = {
    onAgent: (id: string) => app.chooseAgent(id),
    onGoal: (point: { x: number; y: number }, phase: "click" | "drag" | "drop", time: number, agent: string | null) => app.moveGoal(point, phase, time, agent),
    onHover: (candidate: App["highlighted"]) => app.hover(candidate),
    onView: () => app.viewMoved(),
  };
  const pinned = new SceneCanvas(app.viewport, look, { ...listener, onHover: () => {} }, "The pinned plan");
  const main = new SceneCanvas(app.viewport, look, listener, "The scene. Click a road user to plan for it, click the road to set the goal.");
  pinned.element.append(h("span", { class: "pane-label pinned" }, "pinned"));
  const mainLabel = h("span", { class: "pane-label planned" }, "this plan");
  main.element.append(mainLabel);
  const state = h("div", { class: "canvas-state", role: "status" });
  const hint = h("p", { class: "hint" });
  let isScheduled = false;

  const frameOf = (isPinned: boolean): Frame | null => {
    const { scene, state: shownState, plan } = app;
    if (!scene) return null;
    const drive = app.isDriveShown ? app.driven! : null;
    const { shown } = shownState;
    const isPrior = shownState.tab === "prior" && app.draws !== null && !isPinned;
    const steps = isPinned || isPrior || shown.candidates === "none" || !plan ? [] : plan.search.filter((one) => shown.candidates === "all" || one.depth === shown.candidates);
    const total = app.draws?.counts.reduce((sum, one) => sum + one, 0) ?? 1;
    const later = Math.max(0, Math.round(app.step - scene.current_step));
    return {
      scene,
      tracks: drive ? drive.tracks : scene.tracks,
      step: drive ? Math.min(app.step, drive.num_steps - 1) : app.step,
      agent: drive ? (scene.tracks.find((track) => track.is_ego)?.id ?? null) : app.agent,
      planned: drive ? scene.tracks.filter((track) => track.is_ego).map((track) => track.id) : app.planned,
      plan: drive ? null : isPinned ? app.pinnedPlan : plan,
      planColour: isPinned ? "pinned" : "plan",
      steps: drive ? [] : steps,
      highlighted: isPinned || drive ? null : app.highlighted,
      samples: isPrior && !drive ? app.draws!.plans.map((one, index) => ({ plan: one, share: app.draws!.counts[index]! / total })) : [],
      highlightedSample: app.highlightedDraw,
      letterOf: (agent) => (drive ? null : app.letterOf(agent)),
      goals: isPinned || drive || shownState.spec.tokens ? [] : app.goals,
      expert: drive?.expert ?? null,
      drivenPlan: drive ? (drive.plans[Math.min(later, drive.plans.length - 1)] ?? null) : null,
      band: shown.band,
      recorded: shown.recorded,
      names: shown.names,
    };
  };

  const draw = (): void => {
    isScheduled = false;
    const isSplit = app.state.pinned !== null;
    pinned.element.hidden = !isSplit;
    mainLabel.hidden = !isSplit;
    state.hidden = app.scene !== null && !app.isLoading;
    fill(state, app.isLoading ? "Loading the scene…" : app.scene ? "" : (app.planProblem ?? "This scene cannot be shown."));
    hint.hidden = app.state.spec.objective !== "" || app.state.tab !== "plan" || !app.scene || app.state.spec.tokens !== null;
    hint.textContent = app.agent ? `Click where ${app.agent} should be in ${app.model.horizon_s} s${app.isJoint ? ", or another road user to add it" : ""}` : "Click a road user to plan for it";
    for (const [canvas, isPinned] of [[pinned, true], [main, false]] as const) {
      const frame = !isPinned || isSplit ? frameOf(isPinned) : null;
      if (frame) canvas.show(frame);
    }
  };
  // At most once per picture of the screen, however many things changed.
  app.listen(["scene", "agent", "objective", "plan", "pinned", "time", "look", "hover", "draws", "drive", "tab"], () => {
    if (!isScheduled) requestAnimationFrame(draw);
    isScheduled = true;
  });

  const shell = h("div", { class: "shell" });
  const toggleScenes = (): void => void shell.classList.toggle("scenes-open");
  const stage = h(
    "main",
    { class: "stage" },
    h("div", { class: "panes" }, pinned.element, main.element, state, hint, layerSwitches(app), zoomButtons(app)),
    playback(app),
    searchDock(app),
  );
  shell.append(
    header(app, { canvas: () => main.canvas, toggleScenes }),
    sceneBrowser(app, () => shell.classList.remove("scenes-open")),
    stage,
    sidePanel(app),
    notices(app),
  );
  document.addEventListener("keydown", (event) => onKey(app, event, main.canvas));
  app.listen(["look"], () => (document.documentElement.dataset["theme"] = app.theme));
  document.documentElement.dataset["theme"] = app.theme;
  return shell;
}

function sidePanel(app: App): HTMLElement {
  const panels: Record<PageState["tab"], HTMLElement> = {
    plan: h("div", { role: "tabpanel", id: "panel-plan" }, agentsPanel(app), objectivePanel(app), settingsPanel(app), resultPanel(app)),
    prior: h("div", { role: "tabpanel", id: "panel-prior" }, priorPanel(app)),
    drive: h("div", { role: "tabpanel", id: "panel-drive" }, drivePanel(app)),
  };
  const tabs = TABS.map(([name, word]) => h("button", { role: "tab", id: `tab-${name}`, "aria-controls": `panel-${name}`, onclick: () => app.setTab(name) }, word));
  const update = (): void => {
    TABS.forEach(([name], index) => {
      tabs[index]!.setAttribute("aria-selected", String(app.state.tab === name));
      panels[name].hidden = app.state.tab !== name;
    });
  };
  app.listen(["tab", "scene"], update);
  update();
  return h("aside", { class: "side", "aria-label": "Plan" }, h("div", { class: "tabs", role: "tablist" }, ...tabs), ...Object.values(panels), latencyLine(app));
}

function layerSwitches(app: App): HTMLElement {
  const candidates = h(
    "select",
    {
      "aria-label": "Which candidates are drawn",
      onchange: () => app.setShown({ candidates: candidates.value === "all" || candidates.value === "none" ? candidates.value : Number(candidates.value) }),
    },
  );
  const boxes = (["band", "recorded", "names"] as const).map((name) => {
    const box = h("input", { type: "checkbox", onchange: () => app.setShown({ [name]: box.checked }) });
    return { name, box };
  });
  let numTokens = 0;
  const update = (): void => {
    if (app.model.num_tokens !== numTokens) {
      numTokens = app.model.num_tokens;
      const ofTokens = Array.from({ length: numTokens }, (_, index) => h("option", { value: index + 1 }, `of token ${index + 1}`));
      fill(candidates, h("option", { value: "all" }, "all candidates"), ...ofTokens, h("option", { value: "none" }, "plan only"));
    }
    candidates.value = String(app.state.shown.candidates);
    candidates.hidden = app.isDriveShown; // a drive is not searched for
    for (const { name, box } of boxes) box.parentElement!.hidden = app.isDriveShown && name === "band";
    for (const { name, box } of boxes) box.checked = app.state.shown[name];
  };
  const labels = boxes.map(({ name, box }) => h("label", {}, box, { band: "uncertainty", recorded: "recorded", names: "names" }[name]));
  app.listen(["look", "scene", "agent", "drive", "tab"], update);
  update();
  return h("div", { class: "layers" }, candidates, ...labels);
}

function zoomButtons(app: App): HTMLElement {
  const zoom = (factor: number): void => {
    app.viewport.zoomAt(app.viewport.width / 2, app.viewport.height / 2, factor);
    app.viewMoved();
  };
  return h(
    "div",
    { class: "zoom" },
    h("button", { class: "square", "aria-label": "Zoom in", onclick: () => zoom(1.4) }, icon("plus")),
    h("button", { class: "square", "aria-label": "Zoom out", onclick: () => zoom(1 / 1.4) }, icon("minus")),
    h("button", { class: "square", "aria-label": "Back to the agent", onclick: () => app.fitView() }, icon("fit")),
  );
}

function notices(app: App): HTMLElement {
  const region = h("div", { class: "notices", "aria-live": "polite" });
  app.onNotice = (message, kind) => {
    const notice = h("p", { class: `notice ${kind}`, role: kind === "error" ? "alert" : "status" }, message);
    region.append(notice);
    setTimeout(() => notice.remove(), kind === "error" ? 8000 : 4500);
  };
  return region;
}

function onKey(app: App, event: KeyboardEvent, canvas: HTMLCanvasElement): void {
  const target = event.target as HTMLElement;
  if (document.querySelector("dialog[open]")) return; // its keys are its own
  if (/^(INPUT|TEXTAREA|SELECT|SUMMARY)$/.test(target.tagName) || event.ctrlKey || event.metaKey || event.altKey) return;
  if (target.tagName === "BUTTON" && (event.key === " " || event.key === "Enter")) return;
  const arrow = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] }[event.key];
  if (arrow && (target === canvas || target === document.body)) {
    const [dx, dy] = arrow as [number, number];
    if (event.shiftKey) {
      const goal = app.goal ?? app.viewport.centre;
      app.moveGoal({ x: goal.x + dx, y: goal.y + dy }, "drop", event.timeStamp);
    } else {
      app.viewport.pan(-60 * dx, 60 * dy);
      app.viewMoved();
    }
  } else if (event.key === " ") togglePlay(app);
  else if (event.key === "0") app.fitView();
  else if (event.key === "+" || event.key === "=" || event.key === "-") {
    app.viewport.zoomAt(app.viewport.width / 2, app.viewport.height / 2, event.key === "-" ? 1 / 1.2 : 1.2);
    app.viewMoved();
  } else if (event.key === "," || event.key === ".") app.setTime(app.state.time_s + (event.key === "." ? 0.1 : -0.1));
  else if (event.key === "n" || event.key === "p") nextAgent(app, event.key === "n" ? 1 : -1);
  else if (event.key === "Escape" && app.state.spec.tokens) app.setTokens(null);
  else if (event.key === "Escape") clearObjective(app);
  else return;
  event.preventDefault();
}

function nextAgent(app: App, by: number): void {
  const { scene } = app;
  const there = scene?.tracks.filter((track) => track.x_m[scene.current_step] !== null) ?? [];
  if (!there.length) return;
  const index = there.findIndex((track) => track.id === app.agent);
  app.chooseAgent(there[(index + by + there.length) % there.length]!.id);
}

async function start(): Promise<void> {
  const root = document.getElementById("app")!;
  try {
    const app = new App(await server.about());
    fill(root, page(app));
    Object.assign(window, { waycodeStudio: app }); // for the browser test, and for the curious
    await app.loadScene();
  } catch (error) {
    const message = error instanceof ServerError ? error.message : `The page failed: ${String(error)}`;
    fill(root, h("div", { class: "boot" }, h("p", {}, message), h("button", { onclick: () => location.reload() }, "Try again")));
  }
}

void start();
