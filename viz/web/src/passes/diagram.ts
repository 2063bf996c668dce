// The operators of passes as boxes and links.

import type { PassStage, PassesData } from "../data";
import type { Box, Diagram } from "../graph/diagram";

/** The graph after a pass. */
export type Stage = Required<PassStage>;

/** Stages with all that is in them. */
export function stagesOf({ stages }: PassesData): Stage[] {
  let before: Pick<Stage, "nodes" | "links"> = { nodes: [], links: [] };
  return stages.map(({ nodes, links, replaced, ...rest }) => {
    before = { nodes: nodes ?? before.nodes, links: links ?? before.links };
    return { ...rest, ...before, replaced: replaced ?? [] };
  });
}

/** Links of all stages, each once. */
export function allLinks(stages: Stage[], positions: Map<number, number>): [number, number][] {
  const seen = new Set<number>();
  const wide = positions.size + 1;
  const links: [number, number][] = [];
  for (const stage of stages) {
    for (const [a, b] of stage.links) {
      const ends: [number, number] = [positions.get(a) ?? -1, positions.get(b) ?? -1];
      const key = ends[0] * wide + ends[1];
      if (seen.has(key) || ends[0] === ends[1]) continue;
      seen.add(key);
      links.push(ends);
    }
  }
  return links;
}

/** Some operators with the links between them; `times`: how many an operator stands for. */
export function diagramOf(
  data: PassesData,
  nodes: number[],
  ends: [number, number][],
  times?: Map<number, number>,
): Diagram {
  const boxes: Box[] = nodes.map((position) => {
    const { name, detail, role, device } = data.nodes[position] as PassesData["nodes"][number];
    const count = times?.get(position) ?? 1;
    const label = count > 1 ? `${name} ×${count}` : name;
    return { label, detail, role, lane: device, count, stacked: count > 1, folded: false };
  });
  const place = new Map(nodes.map((node, box) => [node, box]));
  const links = ends.map(([a, b]) => ({
    source: place.get(a) as number,
    target: place.get(b) as number,
    order: false,
  }));
  const devices = [...new Set(boxes.flatMap((box) => (box.lane === null ? [] : [box.lane])))];
  devices.sort((a, b) => a - b);
  const several = devices.length > 1 || boxes.some((box) => box.lane === null); // a collective
  const lanes = new Map(devices.map((at) => [at, several ? `device ${at}` : "program"]));
  return { boxes, links, lanes, spans: [] };
}
