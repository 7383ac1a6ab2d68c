/** Drives in closed loop: a new one, or one that `waycode simulate` has kept. */

import { server, ServerError, type DriveRequest } from "./api";
import type { App } from "./app";
import type { DriveSettings } from "./permalink";

const POLL_MS = 300;
const HORIZON_S = 15;

/** Drives the scene on the server, and shows the drive when it is done; `isPlayed` from its beginning. */
export async function startDrive(app: App, wanted: DriveSettings, isPlayed: boolean): Promise<void> {
  app.state.drive = wanted;
  app.remember("replace");
  await app.guarded(async () => {
    const { dataset, scene } = app.state;
    app.drive = await server.startDrive({ dataset, scene, ...(wanted as Pick<DriveRequest, "driver" | "traffic">), horizon_s: HORIZON_S });
    app.driven = null;
    app.changed("drive");
    while (app.drive && (app.drive.state === "waiting" || app.drive.state === "running")) {
      await new Promise((resume) => setTimeout(resume, POLL_MS));
      const { id } = app.drive;
      const update = await server.drive(id);
      if (app.drive?.id !== id) return;
      app.drive = update;
      app.changed("drive");
    }
    if (!app.drive?.result) return;
    app.driven = app.drive.result;
    app.isPlaying = isPlayed;
    if (isPlayed) app.setTime(0);
    app.changed("drive", "time");
  });
}

/** Opens the drive that a scene of `waycode simulate` is. */
export async function openKeptDrive(app: App): Promise<void> {
  const { scene } = app;
  if (!scene?.has_drive) return;
  try {
    const driven = await server.keptDrive(scene.dataset, scene.index);
    if (app.scene !== scene) return; // another was opened meanwhile
    app.driven = driven;
    app.changed("drive", "time");
  } catch (error) {
    if (!(error instanceof ServerError)) throw error;
    app.onNotice(error.message, "error");
  }
}
