/** Closed loop: drive the scene as `waycode simulate` does, watch it, and see when it lost score. */

import type { Drive, DriveRequest } from "../api";
import type { App } from "../app";
import { fill, h } from "../dom";

const CHART = { width: 300, height: 96, left: 26, bottom: 16, top: 6 };

export function drivePanel(app: App): HTMLElement {
  const driver = h("select", { "aria-label": "Driver" }, ...app.about.drivers.map((name) => h("option", { value: name }, name)));
  const traffic = h("select", { "aria-label": "Traffic" }, ...app.about.traffic.map((name) => h("option", { value: name }, name)));
  const start = h(
    "button",
    {
      class: "primary",
      onclick: () => void app.startDrive({ driver: driver.value as DriveRequest["driver"], traffic: traffic.value as DriveRequest["traffic"], horizon_s: 15 }),
    },
    "Drive",
  );
  const body = h("div", { class: "drive-body" });
  const update = (): void => {
    const { drive } = app;
    start.disabled = drive?.state === "waiting" || drive?.state === "running";
    if (!drive) return fill(body, h("p", { class: "faint" }, "The ego drives through the scene, planning anew ten times a second, and is scored by nuPlan's closed-loop formula."));
    if (drive.state === "failed") return fill(body, h("p", { class: "problem", role: "alert" }, drive.problem?.message ?? "The drive failed."));
    if (!drive.result) {
      const share = drive.num_steps ? drive.steps_done / drive.num_steps : 0;
      const progress = h("progress", { max: 1, value: share, "aria-label": "Progress of the drive" });
      return fill(body, progress, h("p", { class: "faint" }, drive.state === "waiting" ? "Waiting for another drive…" : `Driving: step ${drive.steps_done} of ${drive.num_steps}`));
    }
    fill(body, ...result(app, drive.result));
  };
  app.listen(["drive", "scene"], update);
  update();
  return h(
    "section",
    { class: "card" },
    h("div", { class: "card-head" }, h("h2", {}, "Closed loop")),
    h("div", { class: "parameters" }, h("label", {}, h("span", {}, "Driver"), driver), h("label", {}, h("span", {}, "Traffic"), traffic)),
    h("div", { class: "buttons" }, start),
    body,
  );
}

function result(app: App, drive: NonNullable<Drive["result"]>): HTMLElement[] {
  const cursor = chart(app, drive);
  const metrics = Object.entries(drive.metrics).map(([name, value]) => {
    const bar = h("i", {});
    bar.style.width = `${100 * value}%`;
    bar.classList.toggle("low", value < 1);
    return h("tr", {}, h("th", { scope: "row" }, name.replaceAll("_", " ")), h("td", { class: "bar-cell" }, h("span", { class: "bar" }, bar)), h("td", {}, (100 * value).toFixed(0)));
  });
  return [
    h("p", { class: "score" }, h("strong", {}, (100 * drive.score).toFixed(1)), h("span", { class: "faint" }, drive.failure ?? "closed-loop score")),
    cursor,
    h("table", { class: "numbers" }, h("tbody", {}, ...metrics)),
    drive.reasons.length > 0 && h("h3", {}, "What cost score"),
    h(
      "ul",
      { class: "reasons" },
      ...drive.reasons.slice(0, 12).map((reason) =>
        h("li", {}, h("button", { class: "quiet", onclick: () => app.setTime(reason.time_s) }, h("code", {}, `${reason.time_s.toFixed(1)} s`), h("span", {}, reason.description))),
      ),
    ),
  ].filter((part): part is HTMLElement => part !== false);
}

/** Score and speed over time; a click goes there. */
function chart(app: App, drive: NonNullable<Drive["result"]>): HTMLElement {
  const canvas = h("canvas", { class: "chart", role: "img", "aria-label": "Score of the drive so far, and speed, over time" });
  const total = Math.max(0.1, (drive.speed_mps.length - 1) * (app.scene?.dt_s ?? 0.1));
  const fastest = Math.max(1, ...drive.speed_mps, ...drive.expert_speed_mps);
  const x = (time: number): number => CHART.left + ((CHART.width - CHART.left) * time) / total;
  const y = (share: number): number => CHART.top + (CHART.height - CHART.bottom - CHART.top) * (1 - share);
  const draw = (): void => {
    const ratio = window.devicePixelRatio || 1;
    canvas.width = CHART.width * ratio;
    canvas.height = CHART.height * ratio;
    const context = canvas.getContext("2d")!;
    context.scale(ratio, ratio);
    const { palette } = app;
    const line = (points: [number, number][], colour: string, width: number, dash: number[] = []): void => {
      context.beginPath();
      points.forEach(([time, share], index) => (index ? context.lineTo(x(time), y(share)) : context.moveTo(x(time), y(share))));
      context.strokeStyle = colour;
      context.lineWidth = width;
      context.setLineDash(dash);
      context.stroke();
      context.setLineDash([]);
    };
    context.font = "10px system-ui, sans-serif";
    context.fillStyle = palette["faint_ink"]!;
    context.textAlign = "right";
    for (const share of [0, 0.5, 1]) {
      context.fillText(String(100 * share), CHART.left - 5, y(share) + 3);
      line([[0, share], [total, share]], `${palette["faint_ink"]!}44`, 1);
    }
    context.textAlign = "center";
    for (let time = 0; time <= total + 0.01; time += 2) context.fillText(`${time} s`, Math.min(x(time), CHART.width - 10), CHART.height - 3);
    const step = app.scene?.dt_s ?? 0.1;
    line(drive.expert_speed_mps.map((speed, index) => [index * step, speed / fastest]), palette["recorded"]!, 1.2, [2, 3]);
    line(drive.speed_mps.map((speed, index) => [index * step, speed / fastest]), palette["ego"]!, 1.5);
    line(drive.score_time_s.map((time, index) => [time, drive.scores[index]!]), palette["plan"]!, 2.5);
    const now = Math.min(total, Math.max(0, app.state.time_s));
    line([[now, 0], [now, 1]], palette["ink"]!, 1);
  };
  canvas.addEventListener("click", (event) => {
    const bounds = canvas.getBoundingClientRect();
    const at = ((event.clientX - bounds.left) / bounds.width) * CHART.width;
    app.setTime((total * (at - CHART.left)) / (CHART.width - CHART.left));
  });
  app.listen(["time", "look"], () => canvas.isConnected && draw());
  draw();
  const key = (colour: string, word: string): HTMLElement => {
    const mark = h("i", {});
    mark.style.background = app.palette[colour]!;
    return h("span", {}, mark, word);
  };
  return h("div", { class: "chart-pane" }, canvas, h("div", { class: "chart-key faint" }, key("plan", "score so far"), key("ego", `speed (100 = ${fastest.toFixed(0)} m/s)`), key("recorded", "recorded speed")));
}
