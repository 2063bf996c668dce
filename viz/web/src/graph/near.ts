// Finds the routes that touch an area without visiting all of them: short routes by height.

import type { Layout, Route } from "./layout";
import type { Area } from "./scene";

const BAND = 1200; // of the drawing's own units

interface Bands {
  bands: Route[][]; // from top to bottom
  far: Route[];
}

const known = new WeakMap<Layout, Bands>();
const bandOf = (y: number): number => Math.max(0, Math.floor(y / BAND));

export function routesIn(layout: Layout, area: Area): Route[] {
  const { bands, far } = bandsOf(layout);
  const touches = (route: Route): boolean =>
    route.top <= area.bottom &&
    route.bottom >= area.top &&
    route.left <= area.right &&
    route.right >= area.left;
  const found = far.filter(touches);
  const first = bandOf(area.top);
  const last = Math.min(bands.length - 1, bandOf(area.bottom));
  for (let band = first; band <= last; band++)
    for (const route of bands[band] ?? [])
      if (band === Math.max(first, bandOf(route.top)) && touches(route)) found.push(route);
  return found;
}

function bandsOf(layout: Layout): Bands {
  const found = known.get(layout);
  if (found) return found;
  const made: Bands = { bands: [], far: [] };
  for (const route of layout.routes) {
    if (route.far) made.far.push(route);
    else
      for (let band = bandOf(route.top); band <= bandOf(route.bottom); band++)
        (made.bands[band] ??= []).push(route);
  }
  known.set(layout, made);
  return made;
}
