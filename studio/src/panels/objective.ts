/** The objective as a form made from the registry and as text, and the settings of the search. */

import type { ObjectiveInfo, ObjectiveRow, ParameterInfo } from "../api";
import type { App } from "../app";
import { fill, h, icon } from "../dom";
import { newRowFor, numberText, type Argument } from "../objective";

const JOINS: [ObjectiveRow["joined"], string][] = [
  ["+", "plus"],
  ["then", "then"],
  ["where", "where"],
];
const MAX_OPEN_ROWS = 2;
const SUGGESTED = ["left-turn", "right-turn", "lane-change(+1)", "slow-down(2)", "stop-at(distance_m=15)", "likelihood"];

export function objectivePanel(app: App): HTMLElement {
  const rowsElement = h("div", { class: "rows" });
  const text = h("textarea", {
    rows: 2,
    spellcheck: "false",
    "aria-label": "The objective as text",
    placeholder: "Click the road to set a goal, or write an objective",
    oninput: () => app.setObjectiveText(text.value),
  });
  const problem = h("p", { class: "problem", role: "alert" });
  const suggestions = h(
    "div",
    { class: "chips" },
    ...SUGGESTED.map((suggestion) =>
      h(
        "button",
        {
          class: "chip",
          onclick: () => {
            text.value = suggestion;
            app.setObjectiveText(suggestion);
          },
        },
        suggestion.replace(/\(.*/, ""),
      ),
    ),
  );
  let shape = "";

  const change = (index: number, edit: (row: ObjectiveRow) => ObjectiveRow): void => {
    const rows = (app.rows ?? []).map((row, place) => (place === index ? edit(row) : row));
    app.setRows(rows);
  };

  // Of many lines only the heads are shown, so that the plan stays in view; those that are opened stay open.
  const toggled = new Set<number>();
  const rebuild = (): void => {
    const rows = app.rows ?? [];
    const isOpen = (index: number): boolean => rows.length <= MAX_OPEN_ROWS !== toggled.has(index);
    const toggle = (index: number): void => {
      if (!toggled.delete(index)) toggled.add(index);
      rebuild();
    };
    fill(
      rowsElement,
      ...rows.map((row, index) => rowForm(app, row, index, change, isOpen(index), toggle)),
      app.rows === null && h("p", { class: "faint" }, "This objective has brackets: edit it as text."),
      app.rows !== null && adder(app),
    );
  };

  const update = (): void => {
    const next = JSON.stringify([app.rows?.map((row) => [row.joined, row.name, row.agent, row.is_for_all]) ?? null, app.state.agents]);
    if (next !== shape || !rowsElement.contains(document.activeElement)) {
      if (next !== shape) toggled.clear();
      shape = next;
      rebuild();
    }
    if (document.activeElement !== text) text.value = app.state.spec.objective;
    text.setAttribute("aria-invalid", String(app.objectiveProblem !== null));
    problem.textContent = app.objectiveProblem ?? "";
    problem.hidden = app.objectiveProblem === null;
    suggestions.hidden = app.state.spec.objective !== "";
  };
  // While a goal is dragged only its numbers change: replace them, not the form.
  app.listen(["objective", "scene"], update);
  update();
  return h(
    "section",
    { class: "card" },
    h("div", { class: "card-head" }, h("h2", {}, "Objective"), h("button", { class: "quiet small", onclick: () => clearObjective(app) }, "Clear")),
    rowsElement,
    text,
    problem,
    suggestions,
  );
}

export function clearObjective(app: App): void {
  app.setRows([]);
}

function adder(app: App): HTMLElement {
  const add = h("select", {
    class: "adder",
    "aria-label": "Add an objective",
    onchange: () => {
      const info = app.known.get(add.value);
      if (!info) return;
      const rows = app.rows ?? [];
      const added = newRowFor(info, rows.length ? "then" : "first", ahead(app));
      // A joint plan asks whose every line is; what compares agents is for all of them.
      const owner = !app.isJoint ? {} : info.only_joint ? { is_for_all: true } : { agent: app.agent };
      app.setRows([...rows, { ...added, ...owner }]);
    },
  });
  add.append(h("option", { value: "" }, (app.rows?.length ?? 0) > 0 ? "+ Add another objective…" : "Choose an objective…"));
  for (const info of app.about.objectives) if (app.isJoint || !info.only_joint) add.append(h("option", { value: info.name, title: info.summary }, info.name));
  return add;
}

/** A point some way ahead of the agent. */
function ahead(app: App): { x: number; y: number } {
  const track = app.scene?.tracks.find((one) => one.id === app.agent);
  const now = app.scene?.current_step ?? 0;
  const [x, y, heading] = [track?.x_m[now] ?? 0, track?.y_m[now] ?? 0, track?.heading_rad[now] ?? 0];
  return { x: x + 25 * Math.cos(heading), y: y + 25 * Math.sin(heading) };
}

function rowForm(
  app: App,
  row: ObjectiveRow,
  index: number,
  change: (index: number, edit: (row: ObjectiveRow) => ObjectiveRow) => void,
  isOpen: boolean,
  toggle: (index: number) => void,
): HTMLElement {
  const info = app.known.get(row.name);
  const joined = h(
    "select",
    { class: "join", "aria-label": "How it is combined with the line above", onchange: () => change(index, (one) => ({ ...one, joined: joined.value as ObjectiveRow["joined"] })) },
    ...JOINS.map(([value, word]) => h("option", { value, selected: value === row.joined }, word)),
  );
  const weight = h("input", {
    type: "number",
    class: "weight",
    min: 0,
    step: "any",
    value: numberText(row.weight),
    "aria-label": `Weight of ${row.name}`,
    title: "Weight",
    onchange: () => change(index, (one) => ({ ...one, weight: Math.max(0, Number(weight.value) || 0) })),
  });
  const remove = (): void => {
    const rows = (app.rows ?? []).filter((_, place) => place !== index);
    app.setRows(rows.map((one, place) => (place === 0 ? { ...one, joined: "first" } : one)));
  };
  return h(
    "fieldset",
    { class: "row", "data-objective": row.name },
    h("legend", { class: "sr" }, row.name),
    h(
      "div",
      { class: "row-head" },
      index > 0 && joined,
      app.isJoint && !info?.only_joint && ownerChoice(app, row, (owner) => change(index, (one) => ({ ...one, ...owner }))),
      h(
        "button",
        { class: "quiet row-name", title: info?.summary.replaceAll("`", "") ?? "", "aria-expanded": String(isOpen), onclick: () => toggle(index) },
        row.name,
      ),
      h("span", { class: "spacer" }),
      h("span", { class: "faint times", "aria-hidden": "true" }, "×"),
      weight,
      h("button", { class: "quiet square small", "aria-label": `Remove ${row.name}`, onclick: remove }, icon("close")),
    ),
    isOpen && info && h("p", { class: "faint summary" }, info.summary.replaceAll("`", "")),
    isOpen && info && parameters(info, row, (name, value) => change(index, (one) => ({ ...one, arguments: withArgument(one.arguments, name, value) }))),
  );
}

/** For which agent of a joint plan a line is. */
function ownerChoice(app: App, row: ObjectiveRow, set: (owner: Pick<ObjectiveRow, "agent" | "is_for_all">) => void): HTMLElement {
  const owners = [...new Set([...app.state.agents, ...(row.agent === null ? [] : [row.agent])])];
  const select = h(
    "select",
    {
      class: "owner",
      "aria-label": `Agent of ${row.name}`,
      onchange: () => set(select.value === "" ? { agent: null, is_for_all: true } : { agent: select.value, is_for_all: false }),
    },
    ...owners.map((agent) => h("option", { value: agent, selected: agent === row.agent }, `${app.letterOf(agent) ?? "?"} · ${agent}`)),
    h("option", { value: "", selected: row.agent === null }, "all agents"),
  );
  return select;
}

function withArgument(given: ObjectiveRow["arguments"], name: string, value: Argument): ObjectiveRow["arguments"] {
  const { [name]: _, ...rest } = given;
  return value === null ? rest : { ...rest, [name]: value };
}

function parameters(info: ObjectiveInfo, row: ObjectiveRow, set: (name: string, value: Argument) => void): HTMLElement | null {
  const shown = info.parameters.filter((parameter) => parameter.in_text);
  if (!shown.length) return null;
  return h(
    "div",
    { class: "parameters" },
    ...shown.map((parameter) =>
      h(
        "label",
        {},
        h("span", {}, parameter.name.replace(/_(m|s|mps|rad|1pm)$/, "").replaceAll("_", " "), parameter.unit && h("span", { class: "faint" }, ` ${parameter.unit}`)),
        field(parameter, row.arguments[parameter.name], set),
      ),
    ),
  );
}

function field(parameter: ParameterInfo, given: Argument | undefined, set: (name: string, value: Argument) => void): HTMLElement {
  const { name, kind, default: standard } = parameter;
  const value = given ?? standard;
  if (parameter.choices.length || kind === "true or false") {
    const choices = parameter.choices.length ? parameter.choices : ["true", "false"];
    const select = h(
      "select",
      { onchange: () => set(name, kind === "true or false" ? select.value === "true" : select.value), "data-parameter": name },
      ...choices.map((choice) => h("option", { value: choice, selected: choice === String(value) }, choice)),
    );
    return select;
  }
  const isList = kind === "list of numbers";
  const shown = Array.isArray(value) ? value.join(", ") : typeof value === "number" ? numberText(value) : "";
  const input = h("input", {
    type: isList ? "text" : "number",
    step: kind === "whole number" ? 1 : "any",
    value: shown,
    placeholder: standard === null ? "–" : "",
    "data-parameter": name,
    onchange: () => {
      const numbers = input.value.split(/[,\s]+/).filter(Boolean).map(Number);
      if (numbers.some(Number.isNaN)) return;
      if (isList) set(name, numbers);
      else set(name, input.value === "" ? null : numbers[0]!);
    },
  });
  return input;
}

/** Beam, depth, levels, gate, refinement, deadline. */
export function settingsPanel(app: App): HTMLElement {
  const { limits } = app.about;
  const number = (label: string, hint: string, name: "beam_width" | "levels" | "refine_steps", least: number, most: number): HTMLElement => {
    const input = h("input", {
      type: "number",
      min: least,
      max: most,
      step: 1,
      "data-setting": name,
      onchange: () => app.setSettings({ [name]: Math.min(most, Math.max(least, Math.round(Number(input.value) || least))) }),
    });
    app.listen(["objective", "scene"], () => (input.value = String(app.state.spec.settings[name])));
    input.value = String(app.state.spec.settings[name]);
    return h("label", { title: hint }, h("span", {}, label), input);
  };
  const depth = h(
    "select",
    { "data-setting": "depth", onchange: () => app.setSettings({ depth: depth.value === "" ? null : Number(depth.value) }) },
  );
  const deadline = h("input", {
    type: "number",
    min: 0,
    step: 10,
    placeholder: "none",
    "data-setting": "deadline",
    onchange: () =>
      app.setSettings({ deadline_s: deadline.value === "" ? null : Math.min(limits.max_deadline_s, Math.max(0, Number(deadline.value) / 1000)) }),
  });
  const gate = h("input", { type: "checkbox", onchange: () => app.setSettings({ gate: gate.checked }) });
  const summary = h("span", { class: "faint" });
  const update = (): void => {
    const { settings } = app.state.spec;
    const { model } = app;
    if (depth.childElementCount !== model.num_tokens) {
      const options = Array.from({ length: model.num_tokens }, (_, index) =>
        h("option", { value: index + 1 === model.num_tokens ? "" : index + 1 }, `${index + 1} of ${model.num_tokens}`),
      );
      fill(depth, ...options.reverse());
    }
    depth.value = settings.depth === null || settings.depth >= model.num_tokens ? "" : String(settings.depth);
    deadline.value = settings.deadline_s === null ? "" : String(Math.round(settings.deadline_s * 1000));
    gate.checked = settings.gate;
    gate.disabled = Object.keys(model.sigma_max_m).length === 0;
    summary.textContent = [
      settings.beam_width === 1 ? "greedy" : `beam ${settings.beam_width}`,
      settings.refine_steps ? `${settings.refine_steps} gradient steps` : "",
      settings.levels === 2 ? "" : `${settings.levels} levels`,
      settings.gate ? "" : "no gate",
    ]
      .filter(Boolean)
      .join(", ");
  };
  app.listen(["objective", "scene"], update);
  update();
  return h(
    "details",
    { class: "card settings" },
    h("summary", {}, h("h2", {}, "Search"), summary),
    h(
      "div",
      { class: "parameters" },
      number("Beam width", "Prefixes kept after each token; 1 is greedy", "beam_width", 1, limits.max_beam_width),
      h("label", { title: "Number of tokens to search" }, h("span", {}, "Depth"), depth),
      number("Levels", "Levels per dimension of a token", "levels", 2, limits.max_levels),
      number("Gradient steps", "Refinement after the search", "refine_steps", 0, limits.max_refine_steps),
      h("label", { title: "Stop the search after this time, with the best plan so far" }, h("span", {}, "Deadline", h("span", { class: "faint" }, " ms")), deadline),
      h("label", { class: "check", title: "Rank plans that the model is uncertain of behind all others" }, gate, h("span", {}, "Gate")),
    ),
  );
}
