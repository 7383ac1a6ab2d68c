/** The bar at the top: which scene, compare, share, export, code, theme, help. */

import { server } from "../api";
import type { App } from "../app";
import { pin, unpin } from "../codes";
import { copyText, download, fill, h, icon } from "../dom";

const HELP: [string, string][] = [
  ["click a road user", "plan for it"],
  ["click the road", "set the goal"],
  ["drag the goal", "the plan follows"],
  ["drag, scroll, pinch", "move and zoom"],
  ["arrows, + and −", "move and zoom (canvas focused)"],
  ["Shift + arrows", "move the goal by 1 m"],
  ["0", "back to the agent"],
  ["Space", "play or pause"],
  [", and .", "one step back or on"],
  ["N and P", "next and previous agent"],
  ["Esc", "search again, then clear the objective"],
];

export function header(app: App, hooks: { canvas: () => HTMLCanvasElement; toggleScenes: () => void }): HTMLElement {
  const title = h("div", { class: "scene-title" });
  const themeButton = h("button", { class: "quiet square", onclick: () => app.setTheme(app.theme === "dark" ? "light" : "dark") });
  const pinButton = h("button", { class: "quiet", onclick: () => (app.state.pinned ? unpin(app) : pin(app)) });
  const update = (): void => {
    const { scene } = app;
    fill(title, h("strong", {}, scene?.id ?? app.state.dataset), h("span", {}, scene ? [...scene.tags, `${scene.tracks.length} road users`].join(" · ") : ""));
    fill(themeButton, icon(app.theme === "dark" ? "sun" : "moon"));
    themeButton.setAttribute("aria-label", `Use the ${app.theme === "dark" ? "light" : "dark"} theme`);
    fill(pinButton, app.state.pinned ? "End comparison" : "Compare");
    pinButton.setAttribute("aria-pressed", String(app.state.pinned !== null));
    pinButton.title = app.state.pinned ? "" : "Keep this plan and show the next one beside it";
  };
  app.listen(["scene", "look", "pinned"], update);
  update();
  return h(
    "header",
    { class: "top" },
    h("button", { class: "quiet square menu-button", "aria-label": "Scenes", onclick: hooks.toggleScenes }, icon("menu")),
    h("h1", {}, h("span", { class: "mark", "aria-hidden": "true" }), "Waycode ", h("em", {}, "studio")),
    title,
    h("span", { class: "spacer" }),
    pinButton,
    h("button", { class: "quiet", onclick: () => void share(app) }, "Share"),
    exportMenu(app, hooks.canvas),
    h("button", { class: "quiet", onclick: () => void showPython(app) }, "Python"),
    themeButton,
    h("button", { class: "quiet square", "aria-label": "Help", onclick: showHelp }, "?"),
  );
}

async function share(app: App): Promise<void> {
  app.remember("replace");
  const isCopied = await copyText(location.href);
  app.onNotice(isCopied ? "Copied a link to exactly this." : "The address of this page is the link.", "info");
}

function exportMenu(app: App, canvas: () => HTMLCanvasElement): HTMLElement {
  const name = (): string => `${app.scene?.id ?? "scene"}-${app.agent ?? ""}`.replaceAll(/[^\w.-]+/g, "_");
  const items: [string, string, () => Promise<void>][] = [
    ["Picture", "PNG", async () => canvas().toBlob((blob) => blob && download(`${name()}.png`, blob))],
    [
      "Plan",
      "JSON",
      async () => {
        if (!app.plan) return app.onNotice("There is no plan to save yet.", "error");
        // A plan that was searched for is saved in the library's own form, which Python reads back.
        const isSearched = app.plan.objective !== null;
        download(`${name()}.json`, isSearched ? await server.exportPlan(app.request()) : new Blob([JSON.stringify(app.plan)]));
      },
    ],
    [
      "Scene",
      "Parquet",
      async () => download(`${app.scene?.id ?? "scene"}.parquet`, await server.parquet(app.state.dataset, app.state.scene)),
    ],
  ];
  const menu = h(
    "details",
    { class: "menu" },
    h("summary", { class: "button quiet" }, "Export"),
    h(
      "div",
      { class: "menu-items" },
      ...items.map(([what, form, work]) =>
        h(
          "button",
          {
            class: "quiet",
            onclick: () => {
              menu.open = false;
              void app.guarded(work);
            },
          },
          what,
          h("span", { class: "faint" }, form),
        ),
      ),
    ),
  );
  document.addEventListener("pointerdown", (event) => {
    if (!menu.contains(event.target as Node)) menu.open = false;
  });
  return menu;
}

async function showPython(app: App): Promise<void> {
  await app.guarded(async () => {
    if (!app.state.spec.objective) return app.onNotice("Set a goal or an objective first: the code plans for it.", "error");
    const { code } = await server.python(app.request());
    const copy = h("button", { onclick: () => void copyText(code).then((isCopied) => fill(copy, isCopied ? "Copied" : "Select and copy")) }, "Copy");
    dialog("The Python code for this plan", h("pre", { class: "code", tabindex: 0 }, code), copy);
  });
}

function showHelp(): void {
  dialog(
    "How to use the studio",
    h("dl", { class: "keys" }, ...HELP.flatMap(([key, what]) => [h("dt", {}, key), h("dd", {}, what)])),
    h("p", { class: "faint" }, "Every candidate of the search is drawn: dark (by night: bright) is the best, grey and dashed was rejected by the gate because the model is uncertain of it."),
  );
}

function dialog(title: string, ...content: Node[]): void {
  const close = h("button", { class: "quiet square", "aria-label": "Close" }, icon("close"));
  const box = h("dialog", { "aria-label": title }, h("div", { class: "dialog-head" }, h("h2", {}, title), close), ...content);
  close.addEventListener("click", () => box.close());
  box.addEventListener("close", () => box.remove());
  box.addEventListener("click", (event) => event.target === box && box.close());
  document.body.append(box);
  box.showModal();
}
