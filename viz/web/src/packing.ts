// Undoes what viz/pages/packing.py does to the data of large pages.

type Numbers = (number | null)[];
type Packed =
  | { "@": "same"; value: Record<string, unknown> }
  | { "@": "steps"; of: Numbers }
  | { "@": "words"; words: (string | null)[]; of: unknown }
  | { "@": "lists"; lengths: unknown; of: number[] }
  | {
      "@": "records";
      count: number;
      columns: Record<string, unknown>;
      partial: Record<string, [unknown, unknown]>;
    };

const LONG = 64; // elements of a list from which on it holds nothing packed

export function unpacked(value: unknown): unknown {
  if (value === null || typeof value !== "object") return value;
  if (Array.isArray(value)) return value.length < LONG ? value.map(unpacked) : value;
  if ("@" in value) return restored(value as Packed);
  const found = value as Record<string, unknown>;
  for (const key of Object.keys(found)) found[key] = unpacked(found[key]);
  return found;
}

function restored(value: Packed): unknown {
  switch (value["@"]) {
    case "same":
      return Object.fromEntries(
        Object.entries(value.value).map(([key, inner]) => [key, unpacked(inner)]),
      );
    case "steps":
      return summed(value.of);
    case "words":
      return (unpacked(value.of) as number[]).map((at) => value.words[at] ?? null);
    case "lists":
      return lists(unpacked(value.lengths) as number[], value.of);
    case "records":
      return records(value.count, value.columns, value.partial);
  }
}

function summed(steps: Numbers): Numbers {
  let last = 0;
  return steps.map((step) => (step === null ? null : (last += step)));
}

function lists(lengths: number[], steps: number[]): number[][] {
  let [at, head] = [0, 0];
  return lengths.map((length) => {
    const made: number[] = new Array(length);
    for (let k = 0, last = head; k < length; k++) {
      last += steps[at++] as number;
      made[k] = last;
      if (k === 0) head = last;
    }
    return made;
  });
}

function records(
  count: number,
  columns: Record<string, unknown>,
  partial: Record<string, [unknown, unknown]>,
): Record<string, unknown>[] {
  const made: Record<string, unknown>[] = Array.from({ length: count }, () => ({}));
  for (const [key, column] of Object.entries(columns)) {
    const values = unpacked(column) as unknown[];
    made.forEach((record, at) => (record[key] = values[at]));
  }
  for (const [key, [places, column]] of Object.entries(partial)) {
    const values = unpacked(column) as unknown[];
    (unpacked(places) as number[]).forEach((place, at) => {
      (made[place] as Record<string, unknown>)[key] = values[at];
    });
  }
  return made;
}
