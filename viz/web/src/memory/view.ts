// Memory over time, a stack of kinds per device, and what the peak is made of.

import type { Context, Panel } from "../bus";
import type { MemoryData } from "../data";
import { h } from "../dom";
import { bytes, nanoseconds } from "../format";
import { figures } from "../link";
import { textPage, zoomButtons } from "../panel";
import { TableView } from "../table";
import { TimeWindow } from "../window";
import { MemoryChart } from "./chart";

export function memoryView(data: MemoryData, context: Context): Panel {
  const used = new Set(data.devices.flatMap((device) => Object.keys(device.kinds)));
  const { playhead } = context;
  const times = data.devices.flatMap(({ times }) => [times[0] ?? 0, times[times.length - 1] ?? 1]);
  // Steps begin before the first value and may end long after the last one: with feeds and fetches.
  times.push(...data.view, ...(playhead?.data.span ?? []));
  const window = new TimeWindow(Math.min(...times), Math.max(...times));
  window.show(...data.view);
  const opening = `${Math.round(window.from)},${Math.round(window.to)}`;
  const seen = (): string => `${Math.round(window.from)},${Math.round(window.to)}`;
  const moved = (): void => {
    charts.forEach((chart) => chart.redraw());
    context.changed();
  };
  const charts = data.devices.map((device) => new MemoryChart(device, data.looks, window, moved));
  const play = (): void => {
    const time = playhead?.time ?? null;
    if (time !== null && (time < window.from || time > window.to))
      window.show(time - window.span * 0.1, time + window.span * 0.9); // as the timeline
    charts.forEach((chart) => chart.play(time));
  };
  playhead?.listen(play);
  play();
  const zoom = (factor: number): void => {
    window.zoom(factor, (window.from + window.to) / 2);
    moved();
  };
  const fit = (): void => {
    window.all();
    moved();
  };
  const legend = h(
    "ul",
    { class: "legend", "aria-label": "Legend" },
    Object.entries(data.looks).map(([kind, look], number) =>
      used.has(kind)
        ? h(
            "li",
            {},
            h("i", {
              class: `bar-part ${number % 2 ? "hatched" : ""}`,
              style: `--part:var(--${look}-line)`,
            }),
            kind,
          )
        : null,
    ),
    data.devices.some((device) => device.work_area)
      ? h(
          "li",
          {},
          h("i", { class: "work-area" }),
          "work area of machine code, without parameters and feeds",
        )
      : null,
  );
  const sections = data.devices.map((device, number) => {
    const total = device.peak.bytes || 1;
    const table = new TableView(
      {
        type: "table",
        title: `Peak of ${device.name}`,
        notes: [],
        columns: [
          { label: "variable", unit: "text" },
          { label: "kind", unit: "text" },
          { label: "bytes", unit: "bytes" },
          { label: "share", unit: "fraction" },
          { label: "made by", unit: "text" },
          { label: "read last by", unit: "text" },
        ],
        rows: device.peak.parts.map(([name, kind, size, made, read]) => [
          name,
          kind,
          size,
          size / total,
          made,
          read,
        ]),
        nodes: device.peak.parts.map((part) => part[5]),
        sort: [2, "down"],
        bars: [2],
        file: `peak-${device.name.replace(/\W+/g, "-")}.csv`,
      },
      context,
    );
    const words = `${device.name}: peak ${bytes(device.peak.bytes)} at ${nanoseconds(device.peak.time)}, ${device.peak.parts.length} variables`;
    return h(
      "section",
      {},
      h("h3", {}, words),
      charts[number]?.element,
      h(
        "details",
        { open: number === 0 },
        h("summary", {}, "What the peak is made of"),
        table.element,
      ),
    );
  });
  const tools = h("div", { class: "tools" }, legend, zoomButtons(zoom, fit));
  const element = textPage(data, tools, sections);
  element.classList.add("wide");
  return {
    element,
    reveal: moved,
    link: () => (seen() === opening ? {} : { at: seen() }),
    restore: (state) => {
      const [from, to] = figures(state["at"], 2) ?? [];
      if (from !== undefined && to !== undefined) window.show(from, to);
    },
    key: (event) => charts[0]?.key(event),
  };
}
