/** Objectives as lines of a form and as text. The server's parser has the last word; this only writes text for it. */

import type { ObjectiveInfo, ObjectiveRow, ParameterInfo } from "./api";

export type Argument = ObjectiveRow["arguments"][string];

/** A number as people write it. */
export function numberText(value: number): string {
  return String(Number(value.toFixed(2)));
}

function argumentText(value: Argument): string {
  if (Array.isArray(value)) return `[${value.map(numberText).join(", ")}]`;
  if (typeof value === "number") return numberText(value);
  return String(value);
}

/** The text of an objective's lines; parameters that have their default are left out by whoever made the lines. */
export function rowsToText(rows: ObjectiveRow[], known: Map<string, ObjectiveInfo>): string {
  return rows
    .map((row, index) => {
      const joined = index === 0 ? "" : ` ${row.joined === "first" ? "+" : row.joined} `;
      const weight = row.weight === 1 ? "" : `${numberText(row.weight)} * `;
      return joined + weight + ownerText(row) + rowText(row, known.get(row.name));
    })
    .join("");
}

/** Whose the line is, in a joint plan. */
function ownerText(row: ObjectiveRow): string {
  return row.agent !== null ? `agent(${row.agent}): ` : row.is_for_all ? "all: " : "";
}

function rowText(row: ObjectiveRow, info: ObjectiveInfo | undefined): string {
  const order = info?.parameters ?? [];
  const given = order.filter((parameter) => row.arguments[parameter.name] !== undefined && row.arguments[parameter.name] !== null);
  // As in Python: arguments without a name come first, and only as long as none before them is missing.
  let positional = true;
  const parts = order.flatMap((parameter) => {
    if (!given.includes(parameter)) {
      positional = false;
      return [];
    }
    positional &&= parameter.positional;
    const text = argumentText(row.arguments[parameter.name]!);
    return [positional ? text : `${parameter.name}=${text}`];
  });
  return parts.length ? `${row.name}(${parts.join(", ")})` : row.name;
}

/** Whether a line has a point in the scene that can be clicked and dragged. */
export function hasPoint(row: ObjectiveRow, info: ObjectiveInfo | undefined): boolean {
  const names = new Set(info?.parameters.map((parameter) => parameter.name));
  return names.has("x_m") && names.has("y_m") && row.arguments["frame"] !== "agent";
}

export interface Goal {
  agent: string | null; // null: the line does not say whose it is
  x: number;
  y: number;
}

/** The points of all lines that have one. */
export function goalsOf(rows: ObjectiveRow[] | null, known: Map<string, ObjectiveInfo>): Goal[] {
  return (rows ?? []).flatMap((row) => {
    const { x_m: x, y_m: y } = row.arguments;
    return hasPoint(row, known.get(row.name)) && typeof x === "number" && typeof y === "number" ? [{ agent: row.agent, x, y }] : [];
  });
}

/** The lines with the first point moved; without a line that has a point, a goal replaces them.
 *
 * In a joint plan the point is that of `agent`; without one, a goal is added to the lines, and to none a rule for all.
 */
export function withGoal(
  rows: ObjectiveRow[] | null,
  goal: { x: number; y: number },
  known: Map<string, ObjectiveInfo>,
  agent: string | null = null,
): ObjectiveRow[] {
  const point = { x_m: Number(goal.x.toFixed(2)), y_m: Number(goal.y.toFixed(2)) };
  const index = (rows ?? []).findIndex((row) => row.agent === agent && hasPoint(row, known.get(row.name)));
  if (agent !== null && (!rows?.length || index < 0)) {
    const added = { ...newRow("goal-point", rows?.length ? "+" : "first", point), agent };
    if (!rows?.length) return [added, { ...newRow("no-collision", "+"), is_for_all: true }];
    const place = rows.map((row) => row.agent !== null).lastIndexOf(true) + 1 || rows.length; // goals together, rules for all after them
    return [...rows.slice(0, place), added, ...rows.slice(place)];
  }
  if (rows === null || index < 0) return [newRow("goal-point", "first", point)];
  return rows.map((row, place) =>
    place === index ? { ...row, arguments: { ...without(row.arguments, "distance_m"), ...point } } : row,
  );
}

export function newRow(name: string, joined: ObjectiveRow["joined"], given: Record<string, Argument> = {}): ObjectiveRow {
  return { joined, weight: 1, agent: null, is_for_all: false, name, arguments: given };
}

/** A line with what the parser insists on. */
export function newRowFor(info: ObjectiveInfo, joined: ObjectiveRow["joined"], near: { x: number; y: number }): ObjectiveRow {
  const given: Record<string, Argument> = {};
  for (const parameter of info.parameters) {
    if (parameter.name === "x_m" && (parameter.required || info.name === "stop-at")) given["x_m"] = Number(near.x.toFixed(1));
    else if (parameter.name === "y_m" && (parameter.required || info.name === "stop-at")) given["y_m"] = Number(near.y.toFixed(1));
    else if (parameter.required) given[parameter.name] = startingValue(parameter);
  }
  return newRow(info.name, joined, given);
}

function startingValue(parameter: ParameterInfo): Argument {
  if (parameter.choices.length) return parameter.choices[0]!;
  if (parameter.kind === "list of numbers") return parameter.name.startsWith("times") ? [0, 8] : [5, 5];
  if (parameter.kind === "true or false") return false;
  return parameter.kind === "whole number" ? 1 : 5;
}

function without<Value>(record: Record<string, Value>, name: string): Record<string, Value> {
  const { [name]: _, ...rest } = record;
  return rest;
}
