// The list of slices, which a search narrows down.

import { nanoseconds } from "../format";
import { SearchList } from "../list";
import { SIGNS } from "../theme";
import type { TimelineModel } from "./model";

export function sliceList(
  model: TimelineModel,
  choose: (slice: number) => void,
  found: (hits: Set<number> | null) => void,
): SearchList {
  const text = (slice: number): string => {
    const { group, name } = model.trackOf(slice);
    const words = [model.name(slice), model.role(slice), group, name, `step ${model.step(slice)}`];
    return words.join("\n").toLowerCase();
  };
  return new SearchList({
    noun: "slice",
    hint: "name, role, device, step; /regular expression/",
    total: () => model.total,
    text,
    entry: (slice) => ({
      title: model.name(slice),
      detail: `${model.trackOf(slice).group} · ${nanoseconds(model.duration(slice))} at ${model.when(slice)}`,
      sign: SIGNS[model.role(slice)] ?? "",
      role: model.role(slice),
    }),
    choose,
    found,
  });
}
