/** The server: typed requests, and the live socket on which the latest request wins. */

import type { components } from "./schema";

type Schemas = components["schemas"];
export type About = Schemas["AboutReply"];
export type ObjectiveInfo = Schemas["ObjectiveReply"];
export type ParameterInfo = Schemas["ParameterReply"];
export type ObjectiveRow = Schemas["ObjectiveRow"];
export type ParsedObjective = Schemas["ParsedObjective"];
export type SceneFacts = Schemas["SceneFacts"];
export type SceneList = Schemas["SceneList"];
export type SceneData = Schemas["SceneReply"];
export type Track = Schemas["TrackReply"];
export type PlanRequest = Schemas["PlanRequest"];
export type PlanData = Schemas["PlanReply"];
export type Candidate = Schemas["CandidateReply"];
export type DrawRequest = Schemas["DrawRequest"];
export type Draws = Schemas["DrawReply"];
export type Drive = Schemas["DriveReply"];
export type DriveResult = Schemas["DriveResult"];
export type DriveRequest = Schemas["DriveRequest"];
export type Problem = Schemas["Problem"];
interface LiveReply {
  sequence: number;
  plan: PlanData | null;
  problem: Problem | null;
  skipped: number;
}

const API = "/api/v1";

/** What the server answered instead of a result: a sentence for people. */
export class ServerError extends Error {}

async function ask<Reply>(path: string, body?: unknown): Promise<Reply> {
  return (await answer(path, body)).json() as Promise<Reply>;
}

async function answer(path: string, body?: unknown): Promise<Response> {
  let response: Response;
  try {
    response = await fetch(API + path, {
      method: body === undefined ? "GET" : "POST",
      headers: body === undefined ? {} : { "content-type": "application/json" },
      body: body === undefined ? null : JSON.stringify(body),
    });
  } catch {
    throw new ServerError("The studio does not answer. Is `waycode studio` still running?");
  }
  if (!response.ok) {
    const problem = (await response.json().catch(() => null)) as Problem | null;
    throw new ServerError(problem?.message ?? `The studio answered ${response.status}.`);
  }
  return response;
}

export interface SceneFilter {
  dataset?: string;
  family?: string;
  manoeuvre?: string;
  source?: string;
  text?: string;
  offset?: number;
  limit?: number;
}

const scenePath = (dataset: string, scene: number): string => `/scenes/${encodeURIComponent(dataset)}/${scene}`;

export const server = {
  about: () => ask<About>("/about"),
  scenes(filter: SceneFilter): Promise<SceneList> {
    const given = Object.entries(filter).filter(([, value]) => value !== undefined && value !== "");
    return ask(`/scenes?${new URLSearchParams(given.map(([name, value]) => [name, String(value)]))}`);
  },
  scene: (dataset: string, scene: number) => ask<SceneData>(scenePath(dataset, scene)),
  thumbnail: (dataset: string, scene: number, theme: string) =>
    `${API}${scenePath(dataset, scene)}/thumbnail?theme=${theme}`,
  parquet: async (dataset: string, scene: number) => (await answer(`${scenePath(dataset, scene)}/parquet`)).blob(),
  parse: (text: string) => ask<ParsedObjective>("/objectives/parse", { text }),
  plan: (request: PlanRequest) => ask<PlanData>("/plans", request),
  exportPlan: async (request: PlanRequest) => (await answer("/plans/export", request)).blob(),
  python: (request: PlanRequest) => ask<{ code: string }>("/plans/python", request),
  decode: (request: Schemas["DecodeRequest"]) => ask<PlanData>("/decode", request),
  encode: (request: Schemas["EncodeRequest"]) => ask<Schemas["CodeReply"]>("/encode", request),
  draw: (request: DrawRequest) => ask<Draws>("/draws", request),
  keptDrive: (dataset: string, scene: number) => ask<DriveResult>(`${scenePath(dataset, scene)}/drive`),
  startDrive: (request: DriveRequest) => ask<Drive>("/drives", request),
  drive: (id: string) => ask<Drive>(`/drives/${id}`),
};

export interface LiveListener {
  onPlan(plan: PlanData, began: number): void;
  onProblem(message: string): void;
}

/** Plans as fast as the server can: a request that is older than one already answered never shows. */
export class LivePlanner {
  private socket: WebSocket | null = null;
  private next = 1;
  private waiting: { sequence: number; plan: PlanRequest } | null = null;
  private answered = 0;
  private readonly began = new Map<number, number>();

  constructor(private readonly listener: LiveListener) {}

  /** Asks for a plan. `began` is when the user moved, in the time of `performance.now`. */
  request(plan: PlanRequest, began: number): void {
    const message = { sequence: this.next++, plan };
    this.began.set(message.sequence, began);
    if (this.socket?.readyState === WebSocket.OPEN) this.socket.send(JSON.stringify(message));
    else {
      this.waiting = message;
      this.connect();
    }
  }

  /** Answers to requests so far do not count any more. */
  forget(): void {
    this.answered = this.next - 1;
    this.waiting = null;
    this.began.clear();
  }

  private connect(): void {
    if (this.socket && this.socket.readyState <= WebSocket.OPEN) return;
    const address = new URL(`${API}/live`, location.href);
    address.protocol = address.protocol.replace("http", "ws");
    const socket = (this.socket = new WebSocket(address));
    socket.onopen = () => {
      if (this.waiting) socket.send(JSON.stringify(this.waiting));
      this.waiting = null;
    };
    socket.onmessage = (event: MessageEvent<string>) => this.receive(JSON.parse(event.data) as LiveReply);
    socket.onclose = () => {
      if (this.socket === socket) this.socket = null;
      if (this.waiting) {
        this.waiting = null;
        this.listener.onProblem("The studio does not answer. Is `waycode studio` still running?");
      }
    };
  }

  private receive(reply: LiveReply): void {
    if (reply.sequence <= this.answered) return;
    this.answered = reply.sequence;
    const began = this.began.get(reply.sequence) ?? performance.now();
    for (const sequence of this.began.keys()) if (sequence <= reply.sequence) this.began.delete(sequence);
    if (reply.plan) this.listener.onPlan(reply.plan, began);
    else if (reply.problem) this.listener.onProblem(reply.problem.message);
  }
}
