// Starts the page: reads the data, makes tabs, hides the static pictures.

import { readData } from "./data";
import { h } from "./dom";
import { serve } from "./graph/placing";
import { shell } from "./shell";
import { followSystem } from "./theme";

async function start(): Promise<void> {
  const source = document.getElementById("data");
  if (!source) return;
  followSystem();
  const data = await readData(source);
  const page = shell(data);
  document.getElementById("static")?.setAttribute("hidden", "");
  document.body.prepend(page);
  document.documentElement.dataset["ready"] = "yes";
}

if (typeof document === "undefined") serve();
else
  start().catch((error: unknown) => {
    const text = error instanceof Error ? error.message : String(error);
    document.body.prepend(
      h("p", { role: "alert", class: "alert" }, `The interactive page did not start: ${text}`),
    );
    throw error;
  });
