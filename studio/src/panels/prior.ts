/** What the model expects without an objective: draws from its prior, with their likelihood. */

import type { App } from "../app";
import { fill, h } from "../dom";
import { drawFromPrior } from "../prior";

export function priorPanel(app: App): HTMLElement {
  if (!app.about.model.has_prior && !app.about.joint?.has_prior) {
    return h("section", { class: "card" }, h("h2", {}, "Prior"), h("p", { class: "faint" }, "This model has no prior over codes."));
  }
  const count = h("input", { type: "number", min: 1, max: app.about.limits.max_draws, value: 24, "aria-label": "Number of draws" });
  const temperature = h("input", { type: "range", min: 0.3, max: 3, step: 0.1, value: 1, "aria-label": "Temperature" });
  const shownTemperature = h("output", {}, "1.0");
  const list = h("ol", { class: "draws" });
  let seed = app.state.draws?.seed ?? 0;
  const draw = (how: "samples" | "most-likely"): void => {
    const wanted = { how, count: clamp(Number(count.value), 1, app.about.limits.max_draws), seed, temperature: Number(temperature.value) };
    void drawFromPrior(app, wanted);
  };
  temperature.addEventListener("input", () => (shownTemperature.textContent = Number(temperature.value).toFixed(1)));
  temperature.addEventListener("change", () => app.draws && draw("samples"));
  const update = (): void => {
    const { draws } = app;
    if (!draws) return fill(list, h("li", { class: "empty" }, "Draw samples to see what the model expects this road user to do."));
    const total = draws.counts.reduce((sum, one) => sum + one, 0);
    const probabilities = draws.plans.map((plan) => Math.exp(plan.log_probability ?? 0));
    const largest = Math.max(...probabilities);
    fill(
      list,
      ...draws.plans.map((plan, index) => {
        const bar = h("i", {});
        bar.style.width = `${Math.max(2, (100 * probabilities[index]!) / largest)}%`;
        return h(
          "li",
          {},
          h(
            "button",
            {
              class: "draw",
              title: "Take this code",
              onmouseenter: () => highlight(index),
              onmouseleave: () => highlight(null),
              onfocus: () => highlight(index),
              onblur: () => highlight(null),
              onclick: () => app.setTokens(plan.tokens, 2),
            },
            h("code", {}, plan.tokens?.join(" ") ?? ""),
            h("span", { class: "bar" }, bar),
            h("span", { class: "number" }, `${(100 * probabilities[index]!).toFixed(1)} %`),
            h("span", { class: "faint number" }, total > draws.plans.length ? `× ${draws.counts[index]}` : ""),
          ),
        );
      }),
    );
  };
  const highlight = (index: number | null): void => {
    app.highlightedDraw = index;
    app.changed("hover");
  };
  app.listen(["draws", "scene"], update);
  update();
  return h(
    "section",
    { class: "card" },
    h("div", { class: "card-head" }, h("h2", {}, "Prior"), h("span", { class: "faint" }, "without an objective")),
    h(
      "div",
      { class: "parameters" },
      h("label", {}, h("span", {}, "Draws"), count),
      h("label", {}, h("span", {}, "Temperature ", shownTemperature), temperature),
    ),
    h(
      "div",
      { class: "buttons" },
      h("button", { class: "primary", onclick: () => draw("samples") }, "Draw samples"),
      h(
        "button",
        {
          onclick: () => {
            seed += 1;
            draw("samples");
          },
        },
        "Other seed",
      ),
      h("button", { onclick: () => draw("most-likely") }, "Most likely"),
    ),
    list,
  );
}

function clamp(value: number, least: number, most: number): number {
  return Math.min(most, Math.max(least, Math.round(value) || least));
}
