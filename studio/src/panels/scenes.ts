/** The list of scenes with thumbnails and filters. */

import { server, ServerError, type SceneFacts, type SceneFilter, type SceneList } from "../api";
import type { App } from "../app";
import { fill, h, icon } from "../dom";

type FilterName = "dataset" | "family" | "manoeuvre" | "source";

const PAGE = 60;

export function sceneBrowser(app: App, close: () => void): HTMLElement {
  const filter: SceneFilter = { limit: PAGE };
  const list = h("ul", { class: "scene-list" });
  const count = h("p", { class: "faint count", role: "status" });
  const selects = new Map<FilterName, HTMLSelectElement>();
  let timer = 0;
  let shown: SceneFacts[] = [];
  let listed: SceneList | null = null;

  const select = (name: FilterName, label: string): HTMLElement => {
    const element = h("select", {
      "aria-label": label,
      onchange: () => {
        filter[name] = element.value || undefined;
        void load(0);
      },
    });
    selects.set(name, element);
    return element;
  };

  const load = async (offset: number): Promise<void> => {
    clearTimeout(timer);
    try {
      listed = await server.scenes({ ...filter, offset });
    } catch (error) {
      if (!(error instanceof ServerError)) throw error;
      fill(count, error.message);
      return;
    }
    shown = offset === 0 ? listed.scenes : [...shown, ...listed.scenes];
    render();
    // Manoeuvres are found in the background: look again until all are known.
    if (listed.num_read < listed.num_scenes && offset === 0) timer = window.setTimeout(() => void load(0), 3000);
  };

  const render = (): void => {
    if (!listed) return;
    for (const [name, counts] of [
      ["dataset", Object.fromEntries(app.about.datasets.map((one) => [one.name, one.num_scenes]))],
      ["family", listed.families],
      ["manoeuvre", listed.manoeuvres],
      ["source", listed.sources],
    ] as const) {
      const element = selects.get(name)!;
      const all = { dataset: "Dataset", family: "Family", manoeuvre: "Manoeuvre", source: "Source" }[name];
      const options = Object.entries(counts).map(([value, number]) => h("option", { value }, `${words(value)} (${number})`));
      fill(element, h("option", { value: "" }, all), ...options);
      element.value = filter[name] ?? "";
      element.hidden = Object.keys(counts).length < 2;
    }
    fill(count, listed.num_matching === listed.num_scenes ? `${listed.num_scenes} scenes` : `${listed.num_matching} of ${listed.num_scenes} scenes`);
    const more = shown.length < listed.num_matching;
    fill(
      list,
      ...shown.map(entry),
      more && h("li", {}, h("button", { class: "wide", onclick: () => void load(shown.length) }, "Show more")),
      shown.length === 0 && h("li", { class: "empty" }, "No scene fits these filters."),
    );
  };

  const entry = (facts: SceneFacts): HTMLElement => {
    const isOpen = facts.dataset === app.state.dataset && facts.index === app.state.scene;
    const open = (): void => {
      close();
      // A drive is there to be watched; a recorded scene has none.
      const tab = facts.score !== null ? "drive" : app.scene?.has_drive ? "plan" : app.state.tab;
      void app.openScene(facts.dataset, facts.index, tab);
    };
    return h(
      "li",
      {},
      h(
        "button",
        { class: "scene-entry", "aria-current": isOpen ? "true" : null, "data-scene": `${facts.dataset}/${facts.index}`, onclick: open },
        h("img", { src: server.thumbnail(facts.dataset, facts.index, app.theme), alt: "", loading: "lazy", width: 72, height: 48 }),
        h(
          "span",
          { class: "scene-words" },
          h("strong", {}, words(facts.family ?? facts.id)),
          h("span", {}, facts.manoeuvre ?? "…"),
          h("span", { class: "faint" }, facts.driver ?? `${facts.dataset} ${facts.index}`),
        ),
        facts.score !== null && h("span", { class: `entry-score ${facts.score < 0.5 ? "bad" : facts.score < 0.95 ? "warn" : "good"}`, title: "Closed-loop score" }, (100 * facts.score).toFixed(0)),
      ),
    );
  };

  const search = h("input", {
    type: "search",
    placeholder: "Find by id",
    "aria-label": "Find scenes by id",
    oninput: () => {
      filter.text = search.value || undefined;
      clearTimeout(timer);
      timer = window.setTimeout(() => void load(0), 200);
    },
  });
  app.listen(["scene", "look"], render);
  void load(0);
  return h(
    "aside",
    { class: "scenes", "aria-label": "Scenes" },
    h("div", { class: "scenes-head" }, h("h2", {}, "Scenes"), h("button", { class: "quiet square close-scenes", "aria-label": "Close", onclick: close }, icon("close"))),
    h("div", { class: "filters" }, search, select("family", "Family"), select("manoeuvre", "Manoeuvre"), select("dataset", "Dataset"), select("source", "Source")),
    count,
    list,
  );
}

function words(name: string): string {
  return name.replaceAll("_", " ");
}
