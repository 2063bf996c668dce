// The page's data; viz/page_data.py holds the same types for Python, with what they mean.

import { unpacked } from "./packing";

export type Unit = "text" | "count" | "seconds" | "bytes" | "fraction" | "ratio" | "number";
export type Cell = string | number | null;

export interface VarFile {
  name: string;
  version: number;
  device: number | null;
  kind: "var" | "dummy" | "control";
  shape: number[];
  dtype: string;
  bytes: number | null;
  persistable: boolean;
}

export interface NodeFile {
  id: number;
  name: string;
  kind: string;
  device: number | null;
  role: string;
  scope: string;
  layer: string;
  line: string | null;
  inputs: number[];
  outputs: number[];
  task: string | null;
  body?: InnerOp[]; // of the blocks that it runs
  kernels?: number[]; // listings of what did its work
  expression?: string; // of a fused one: what it computes
  loop?: number; // of an operator of a block: the node that runs it
  at?: number; // and its place there
  rounds?: string; // of one that runs blocks: where its rounds are
}

export interface InnerOp {
  name: string;
  output: string;
  depth: number;
  reads?: string[]; // names of variables
  writes?: string[];
  shapes?: (number[] | null)[]; // of what it writes
  line?: string | null;
  kernels?: number[]; // listings of what did its work
}

/** The text of a function. */
export interface Listing {
  name: string;
  kind: "declaration" | "machine code" | "Python";
  takes: string;
  source: string;
}

/** What is written of operators, each once; files of before lack it. */
export interface Texts {
  lines?: Record<string, string>; // the user's statements, by file and line
  listings?: Listing[];
  declarations?: Record<string, number>; // which listing declares a type
}

export interface GraphFile extends Texts {
  title: string;
  mode: string;
  devices: { id: number; place: string; parallel_do: boolean }[];
  vars: VarFile[];
  nodes: NodeFile[];
}

export interface GroupData {
  label: string;
  kind: string;
  parent: number | null;
  nodes: number[];
  folded: boolean;
}

export interface ReplayData {
  step: number;
  time: number[];
  delay: number[];
  before: number[][];
  owner: number[];
  owners: number[][];
  waits?: [number, number, number, boolean][]; // for Python of other threads: who, for whom, how long
}

/** Rounds of a loop, of all its runs one after another. */
export interface RoundsData {
  of: number[]; // the round of the loop around it in which each was
  seconds: (number | null)[][]; // by operator directly in its body
}

export interface OverlayData {
  time?: (number | null)[];
  spread?: (number | null)[];
  memory?: (number | null)[];
  slack?: (number | null)[];
  effect?: (number | null)[];
  replay?: ReplayData;
  rounds?: Record<string, RoundsData>; // by node, or node and position in its body: "7", "7.3"
  critical?: number[];
  failed?: Record<string, string>; // by node id, what is said of its failure
}

interface Base {
  title: string;
  notes: string[];
}

export interface GraphData extends Base {
  type: "graph";
  graph: GraphFile;
  groups: GroupData[];
  twins: (number | null)[];
  fold_replicas: boolean | null; // null: where that shows more of the network
  fold: "auto" | "set"; // auto: as far as the window makes necessary
  overlay?: OverlayData;
  parts?: Record<string, string[]>;
}

/** Operators of a graph that belong together; `parent` is the position of the group around. */
export interface TimelineGroup {
  label: string;
  kind: string;
  parent: number | null;
  nodes: number[]; // directly in it
}

export interface TimelineData extends Base {
  type: "timeline";
  groups?: TimelineGroup[];
  span: [number, number];
  tracks: { name: string; group: string; device: number | null }[];
  names: string[];
  roles: string[];
  slices: {
    track: number[];
    depth: number[];
    start: number[];
    duration: number[];
    name: number[];
    role: number[];
    node: (number | null)[];
    step: number[];
  };
  typical: number;
  flows: [number, number][];
  critical: number[];
  counters: CounterData[];
  details?: Record<string, Record<string, unknown>>;
  play?: PlayData;
}

export interface PlayData {
  step: number;
  span: [number, number];
  nodes: number[][];
  start: number[];
  stop: number[];
  waits: { device: number; span: [number, number]; nodes: number[]; text: string }[];
}

export interface CounterData {
  name: string;
  device: number | null;
  unit: Unit;
  times: number[];
  values: number[];
}

export interface TableData extends Base {
  type: "table";
  columns: { label: string; unit: Unit }[];
  rows: Cell[][];
  totals?: Cell[];
  sort?: [number, "up" | "down"];
  bars?: number[];
  nodes?: number[][];
  file?: string;
}

export interface DeviceMemory {
  name: string;
  times: number[];
  kinds: Record<string, number[]>;
  work_area?: number[];
  peak: {
    time: number;
    bytes: number;
    parts: [string, string, number, string, string, number[]][];
  };
}

export interface MemoryData extends Base {
  type: "memory";
  devices: DeviceMemory[];
  looks: Record<string, string>; // by kind, in the order of the stack, the role whose colour it has
  view: [number, number]; // what is seen at first: the steps that count, and the peaks
}

export interface PassNode {
  id: number;
  name: string;
  detail: string;
  role: string;
  device: number | null;
  lines: string[];
  line?: string; // where the user made it
  kernels?: number[]; // listings of what it becomes by itself
}

export interface PassStage {
  name: string;
  note: string;
  nodes?: number[]; // nodes and links of one that changed nothing: as before it
  links?: [number, number][];
  added: number[];
  removed: number[];
  changed: number[];
  replaced?: [number, number[]][]; // of an added one: those in whose place it is
}

export interface PassesData extends Base, Texts {
  type: "passes";
  nodes: PassNode[];
  stages: PassStage[];
}

export interface CompareData extends Base {
  type: "compare";
  sides: [{ name: string; step: number }, { name: string; step: number }];
  causes: [string, number, string, boolean, number[]][];
  rows: [string, number, number, number[]][];
  unmatched: [string[], string[]];
}

export interface ChartData extends Base {
  type: "chart";
  x: { label: string; unit: Unit };
  y: { label: string; unit: Unit };
  series: { name: string; x: number[]; y: number[]; dashed?: boolean }[];
}

export interface TextSection {
  heading: string;
  figures?: { label: string; value: number | null; unit: Unit; hint?: string }[];
  steps?: { numbers: number[]; seconds: number[]; left_out: number; median: number };
  bars?: { label: string; unit: Unit; parts: [string, number, string][] }[];
  sentences?: { text: string; tone: "plain" | "good" | "warn"; nodes?: number[]; step?: number }[];
  code?: string[];
}

export interface TextData extends Base {
  type: "text";
  sections: TextSection[];
}

export interface StackData extends Base {
  type: "stack";
  views: ViewData[];
}

export interface RunData extends Base {
  type: "run"; // views of one run among several, as tabs within a tab
  views: ViewData[];
}

export type ViewData =
  | GraphData
  | TimelineData
  | TableData
  | MemoryData
  | PassesData
  | CompareData
  | ChartData
  | TextData
  | StackData
  | RunData;

export interface PageData {
  title: string;
  roles: Record<string, string>;
  views: ViewData[];
}

/** Read the data element; large pages carry it as zlib in base64. */
export async function readData(element: HTMLElement): Promise<PageData> {
  const text = element.textContent ?? "";
  if (element.getAttribute("type") === "application/json") {
    return JSON.parse(text) as PageData;
  }
  const packed = Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  return unpacked(await new Response(stream).json()) as PageData;
}
