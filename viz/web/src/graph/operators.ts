// The operators of a graph as a list that is searched.

import type { Source } from "../list";
import { SIGNS } from "../theme";
import type { GraphModel } from "./model";

export function operators(model: GraphModel): Omit<Source, "choose" | "found"> {
  return {
    noun: "operator",
    hint: "name, op, device, shape, file line; /regular expression/",
    total: () => model.nodes.length,
    text: (position) => model.text(position),
    entry: (position) => {
      const node = model.node(position);
      const where = node.device === null ? "" : `device ${node.device} · `;
      return {
        title: node.name,
        detail: where + model.detail(position), // which may be long, and be cut
        sign: SIGNS[node.role] ?? "",
        role: node.role,
      };
    },
  };
}
