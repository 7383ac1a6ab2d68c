/** The time slider and the buttons beside it. */

import type { App } from "../app";
import { fill, h, icon } from "../dom";

export function playback(app: App): HTMLElement {
  const slider = h("input", { type: "range", class: "time", "aria-label": "Time in seconds from now", step: 0.1 });
  const button = h("button", { class: "quiet square", onclick: () => togglePlay(app) });
  const now = h("button", { class: "quiet square", "aria-label": "Back to now", title: "Back to now", onclick: () => app.setTime(0) }, icon("back"));
  const shown = h("output", { class: "time-shown" });
  const update = (): void => {
    const [first, last] = app.timeRange;
    slider.min = String(first);
    slider.max = String(last);
    slider.value = String(app.state.time_s);
    slider.style.setProperty("--now", `${(100 * -first) / Math.max(0.1, last - first)}%`);
    slider.setAttribute("aria-valuetext", `${app.state.time_s.toFixed(1)} seconds`);
    shown.textContent = `${app.state.time_s >= 0 ? "+" : "−"}${Math.abs(app.state.time_s).toFixed(1)} s`;
    fill(button, icon(app.isPlaying ? "pause" : "play"));
    button.setAttribute("aria-label", app.isPlaying ? "Pause" : "Play");
  };
  slider.addEventListener("input", () => {
    app.isPlaying = false;
    app.setTime(Number(slider.value));
  });
  app.listen(["time", "scene", "drive", "tab"], update);
  update();
  let last = performance.now();
  const tick = (time: number): void => {
    if (app.isPlaying && app.scene) {
      const next = app.state.time_s + (time - last) / 1000;
      if (next >= app.timeRange[1]) app.isPlaying = false;
      app.setTime(next);
    }
    last = time;
    requestAnimationFrame(tick);
  };
  requestAnimationFrame(tick);
  return h("div", { class: "playback" }, button, now, slider, shown);
}

export function togglePlay(app: App): void {
  app.isPlaying = !app.isPlaying;
  if (app.isPlaying && app.state.time_s >= app.timeRange[1] - 0.05) app.state.time_s = 0;
  app.changed("time");
  app.remember("replace");
}
