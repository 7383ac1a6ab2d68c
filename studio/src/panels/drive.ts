/** Closed loop: drive the scene as `waycode simulate` does, or play a drive that it has kept; see when it lost score. */

import type { DriveResult } from "../api";
import type { App } from "../app";
import { fill, h } from "../dom";
import { startDrive } from "../drives";
import { driveChart } from "./drive-chart";

const NUM_REASONS = 12;

export function drivePanel(app: App): HTMLElement {
  const driver = h("select", { "aria-label": "Driver" }, ...app.about.drivers.map((name) => h("option", { value: name }, name)));
  const traffic = h("select", { "aria-label": "Traffic" }, ...app.about.traffic.map((name) => h("option", { value: name }, name)));
  const start = h(
    "button",
    {
      class: "primary",
      onclick: () => void startDrive(app, { driver: driver.value, traffic: traffic.value }, true),
    },
    "Drive",
  );
  const title = h("h2", {});
  const form = h(
    "div",
    {},
    h("div", { class: "parameters" }, h("label", {}, h("span", {}, "Driver"), driver), h("label", {}, h("span", {}, "Traffic"), traffic)),
    h("div", { class: "buttons" }, start),
  );
  const body = h("div", { class: "drive-body" });
  const update = (): void => {
    const { drive, driven } = app;
    if (app.state.drive) [driver.value, traffic.value] = [app.state.drive.driver, app.state.drive.traffic];
    // The scene of a kept drive is the driven one: its ego has been replaced, so that it cannot be driven again.
    form.hidden = app.scene?.has_drive ?? false;
    fill(title, form.hidden ? "Kept drive" : "Closed loop");
    start.disabled = drive?.state === "waiting" || drive?.state === "running";
    if (driven) return fill(body, ...result(app, driven));
    if (form.hidden) return fill(body, h("p", { class: "faint" }, "Loading the drive…"));
    if (!drive) return fill(body, h("p", { class: "faint" }, "The ego drives through the scene, planning anew ten times a second, and is scored by nuPlan's closed-loop formula."));
    if (drive.state === "failed") return fill(body, h("p", { class: "problem", role: "alert" }, drive.problem?.message ?? "The drive failed."));
    const share = drive.num_steps ? drive.steps_done / drive.num_steps : 0;
    const progress = h("progress", { max: 1, value: share, "aria-label": "Progress of the drive" });
    fill(body, progress, h("p", { class: "faint" }, drive.state === "waiting" ? "Waiting for another drive…" : `Driving: step ${drive.steps_done} of ${drive.num_steps ?? "…"}`));
  };
  app.listen(["drive", "scene"], update);
  update();
  return h("section", { class: "card" }, h("div", { class: "card-head" }, title), form, body);
}

function result(app: App, drive: DriveResult): HTMLElement[] {
  const metrics = Object.entries(drive.metrics).map(([name, value]) => {
    const bar = h("i", {});
    bar.style.width = `${100 * value}%`;
    bar.classList.toggle("low", value < 1);
    return h("tr", {}, h("th", { scope: "row" }, name.replaceAll("_", " ")), h("td", { class: "bar-cell" }, h("span", { class: "bar" }, bar)), h("td", {}, (100 * value).toFixed(0)));
  });
  const timings = [...drive.planning_ms].sort((a, b) => a - b);
  const median = timings.length ? `, ${timings[Math.floor(timings.length / 2)]!.toFixed(0)} ms per plan` : "";
  return [
    h("p", { class: "score" }, h("strong", {}, (100 * drive.score).toFixed(1)), h("span", { class: "faint" }, `${drive.driver}, ${drive.traffic} traffic${median}`)),
    drive.failure !== null && h("p", { class: "problem", role: "alert" }, drive.failure),
    driveChart(app, drive),
    h("table", { class: "numbers" }, h("tbody", {}, ...metrics)),
    drive.reasons.length > 0 && h("h3", {}, "What cost score"),
    h(
      "ul",
      { class: "reasons" },
      ...drive.reasons.slice(0, NUM_REASONS).map((reason) =>
        h("li", {}, h("button", { class: "quiet", onclick: () => app.setTime(reason.time_s) }, h("code", {}, `${reason.time_s.toFixed(1)} s`), h("span", {}, reason.description))),
      ),
    ),
  ].filter((part): part is HTMLElement => part !== false);
}
