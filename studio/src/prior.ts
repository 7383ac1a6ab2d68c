/** Draws from the model's prior: what it expects without an objective. */

import { server } from "./api";
import type { App } from "./app";
import type { DrawSettings } from "./permalink";

export async function drawFromPrior(app: App, wanted: DrawSettings): Promise<void> {
  app.state.draws = wanted;
  app.remember("replace");
  await app.guarded(async () => {
    const draws = await server.draw({ ...app.choice(), ...wanted });
    if (app.state.draws !== wanted) return; // others were asked for meanwhile
    app.draws = draws;
    app.highlightedDraw = null;
    app.changed("draws");
  });
}
