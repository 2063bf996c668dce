// Lines over an axis, with the figures as a table below for readers who cannot see them.

import type { Context, Panel } from "./bus";
import type { Cell, ChartData } from "./data";
import { h, s } from "./dom";
import { figure, tick } from "./format";
import { textPage } from "./panel";
import { TableView } from "./table";

const WIDTH = 720;
const HEIGHT = 340;
const EDGE = { left: 88, right: 24, top: 16, bottom: 46 };
const LETTER = 8; // pixels, about, of a bold letter
const MARKS = ["circle", "square", "diamond", "triangle"] as const;

export function chartView(data: ChartData, context: Context): Panel {
  const xs = [...new Set(data.series.flatMap((line) => line.x))].sort((a, b) => a - b);
  const rows = xs.map((x): Cell[] => [
    x,
    ...data.series.map((line) => line.y[line.x.indexOf(x)] ?? null),
  ]);
  const table = new TableView(
    {
      type: "table",
      title: data.title,
      notes: [],
      columns: [
        { label: data.x.label, unit: data.x.unit },
        ...data.series.map((line) => ({ label: line.name, unit: data.y.unit })),
      ],
      rows,
      file: "chart.csv",
    },
    context,
  );
  return {
    element: textPage(
      data,
      drawing(data) as unknown as HTMLElement,
      h("details", {}, h("summary", {}, "Figures"), table.element),
    ),
  };
}

function drawing(data: ChartData): SVGElement {
  const alone = data.series.length === 1; // then the axis says what the line is
  const longest = Math.max(...data.series.map((line) => line.name.length));
  const end = WIDTH - EDGE.right - (alone ? 0 : longest * LETTER);
  const points = data.series.flatMap((line) =>
    line.x.map((x, k) => [x, line.y[k] as number] as const),
  );
  const [left, right] = [Math.min(...points.map(([x]) => x)), Math.max(...points.map(([x]) => x))];
  const top = niceTop(Math.max(...points.map(([, y]) => y), 0));
  const x = (value: number): number =>
    EDGE.left + ((value - left) / (right - left || 1)) * (end - EDGE.left);
  const y = (value: number): number =>
    HEIGHT - EDGE.bottom - (value / (top || 1)) * (HEIGHT - EDGE.top - EDGE.bottom);
  const svg = s("svg", {
    viewBox: `0 0 ${WIDTH} ${HEIGHT}`,
    class: "chart",
    role: "img",
    "aria-label": data.title,
  });
  for (let k = 0; k <= 4; k++) {
    const value = (top * k) / 4;
    svg.append(
      s("line", {
        x1: EDGE.left,
        x2: end,
        y1: y(value),
        y2: y(value),
        class: "grid",
      }),
    );
    svg.append(
      s(
        "text",
        { x: EDGE.left - 8, y: y(value) + 4, "text-anchor": "end" },
        tick(value, data.y.unit),
      ),
    );
  }
  const xs = [...new Set(points.map(([value]) => value))].sort((a, b) => a - b);
  const apart = 34; // pixels between labels
  let last = -Infinity;
  for (const value of xs) {
    if (x(value) - last < apart) continue;
    last = x(value);
    svg.append(
      s(
        "text",
        { x: last, y: HEIGHT - EDGE.bottom + 18, "text-anchor": "middle" },
        figure(value, data.x.unit),
      ),
    );
  }
  svg.append(
    s(
      "text",
      {
        x: (EDGE.left + end) / 2,
        y: HEIGHT - 6,
        "text-anchor": "middle",
        class: "axis",
      },
      data.x.label,
    ),
  );
  svg.append(
    s(
      "text",
      {
        x: 14,
        y: HEIGHT / 2,
        "text-anchor": "middle",
        class: "axis",
        transform: `rotate(-90 14 ${HEIGHT / 2})`,
      },
      data.y.label,
    ),
  );
  const taken: number[] = [];
  data.series.forEach((line, number) => {
    const colour = `var(--part-${number % 8})`;
    const path = line.x
      .map(
        (value, k) => `${k ? "L" : "M"}${x(value).toFixed(1)} ${y(line.y[k] as number).toFixed(1)}`,
      )
      .join("");
    svg.append(
      s("path", {
        d: path,
        fill: "none",
        stroke: colour,
        "stroke-width": 2.2,
        ...(line.dashed && { "stroke-dasharray": "6 4" }),
      }),
    );
    line.x.forEach((value, k) => {
      const mark = marker(
        MARKS[number % MARKS.length] ?? "circle",
        x(value),
        y(line.y[k] as number),
        colour,
      );
      mark.append(
        s(
          "title",
          {},
          `${line.name}: ${figure(line.y[k] as number, data.y.unit)} at ${figure(value, data.x.unit)}`,
        ),
      );
      svg.append(mark);
    });
    if (alone) return;
    let at = y(line.y[line.y.length - 1] ?? 0) + 4;
    while (taken.some((other) => Math.abs(other - at) < 16)) at += 16; // names do not overlap
    taken.push(at);
    svg.append(
      s("text", { x: end + 12, y: at, style: `fill:${colour}`, class: "name" }, line.name),
    );
  });
  return svg;
}

function niceTop(value: number): number {
  if (value <= 0) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return ([1, 1.2, 1.6, 2, 2.4, 3.2, 4, 5, 6, 8, 10].find((k) => k * power >= value) ?? 10) * power;
}

function marker(kind: (typeof MARKS)[number], x: number, y: number, colour: string): SVGElement {
  const paths = {
    circle: `M${x - 4} ${y}a4 4 0 1 0 8 0a4 4 0 1 0 -8 0Z`,
    square: `M${x - 3.6} ${y - 3.6}h7.2v7.2h-7.2Z`,
    diamond: `M${x} ${y - 5}l5 5l-5 5l-5 -5Z`,
    triangle: `M${x} ${y - 5}l5 9h-10Z`,
  };
  return s("path", { d: paths[kind], fill: colour });
}
