/** The score of a drive so far, and its speed, over time. */

import type { DriveResult } from "../api";
import type { App } from "../app";
import { h } from "../dom";

const CHART = { width: 300, height: 96, left: 26, bottom: 16, top: 6 };

/** Score and speed over time; a click goes there. */
export function driveChart(app: App, drive: DriveResult): HTMLElement {
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
