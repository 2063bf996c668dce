"""The data of the interactive page: plain JSON values, described in viz/web/README.md.

Python computes graphs, schedules and figures; the page lays out the visible part and handles the
mouse and the keyboard. Times are integer nanoseconds since the start of the trace, durations are
integer nanoseconds, sizes are bytes. A node is the `id` of a node in the graph file
(dpexec/engine/graph/describe.py), so every view of a page refers to the same nodes. None means
unknown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NotRequired, TypedDict

from dpexec.engine.graph.listings import Listing

Unit = Literal["text", "count", "seconds", "bytes", "fraction", "ratio", "number"]
"""How a figure is written: seconds as "1.20 ms", fraction as "81%", ratio as "×1.9"."""


class GroupData(TypedDict):
    """Nodes that fold into one box; groups form a forest.

    A folded group must not depend on itself through nodes outside of it. `kind` is one of
    `groups.KINDS`, `parent` the position of the surrounding group, and `nodes` are ids of the nodes
    directly in the group.
    """

    label: str
    kind: str
    parent: int | None
    nodes: Sequence[int]
    folded: bool


class ReplayData(TypedDict):
    """The typical step as activities, in an order in which each follows those it waited for.

    An activity begins `delay` nanoseconds after the last activity in its `before` has ended, or
    after the beginning of the step. Its time belongs to its owners in equal parts.
    """

    step: int  # nanoseconds
    time: Sequence[int]
    delay: Sequence[int]
    before: Sequence[Sequence[int]]
    owner: Sequence[int]  # position in `owners`
    owners: Sequence[Sequence[int]]  # positions of nodes; empty for time outside operators
    waits: NotRequired[Sequence[tuple[int, int, int, bool]]]
    """For Python of other threads: the activity that waited, the one for which it did, nanoseconds,
    and whether they are a part of its time, and not of its delay."""


class RoundsData(TypedDict):
    """Rounds of a loop, of all its runs one after another."""

    of: list[int]  # by round: the round of the surrounding loop; 0 without one
    seconds: list[list[float | None]]  # by operator directly in its body; None: it did not run


class OverlayData(TypedDict, total=False):
    """Measured figures of nodes, each a list with one entry per node of the graph, by position."""

    time: Sequence[float | None]  # seconds per step, the median
    spread: Sequence[float | None]  # median distance of the steps from the median
    memory: Sequence[int | None]  # bytes of its outputs that are alive at the peak
    slack: Sequence[float | None]  # seconds it may be late without delaying the step
    effect: Sequence[float | None]  # seconds on the critical path: 1% faster saves 1% of them
    replay: ReplayData
    rounds: Mapping[str, RoundsData]  # by node, or node and position in its body: "7", "7.3"
    critical: Sequence[int]  # node ids of the critical path, in order
    failed: Mapping[str, str]  # by node id, what is said of its failure


class GraphData(TypedDict):
    """Draws a graph file: lanes per device, collectives between them."""

    type: Literal["graph"]
    title: str
    notes: Sequence[str]
    graph: Mapping[str, Any]  # the graph file, format "dpexec.graph"
    groups: Sequence[GroupData]
    twins: Sequence[int | None]  # per node: the node of the first device that does the same
    fold: Literal["auto", "set"]  # auto: the page folds what its window leaves unreadable
    fold_replicas: bool | None  # opens with one lane for equal devices; None: if lanes hide more
    overlay: NotRequired[OverlayData]
    parts: NotRequired[Mapping[str, Sequence[str]]]  # node id -> operators it was fused from


class TrackData(TypedDict):
    """A row of the timeline: a thread of a device; slices on it nest but never overlap."""

    name: str
    group: str  # heading above the row, e.g. "device 0"
    device: int | None


class SlicesData(TypedDict):
    """The slices, a column each, sorted by track, then start, then longest first."""

    track: Sequence[int]
    depth: Sequence[int]  # 0 for tasks, 1 for the operators in them, ...
    start: Sequence[int]
    duration: Sequence[int]
    name: Sequence[int]  # position in `names`
    role: Sequence[int]  # position in `roles`
    node: Sequence[int | None]
    step: Sequence[int]


class CounterData(TypedDict):
    """A line under the tracks, e.g. live bytes of a device."""

    name: str
    device: int | None
    unit: Unit
    times: Sequence[int]
    values: Sequence[float]


class PlayData(TypedDict):
    """The typical step moment by moment, for the playhead."""

    step: int  # its number
    span: tuple[int, int]
    nodes: Sequence[Sequence[int]]  # at work, an entry for each piece of work, by start
    start: Sequence[int]
    stop: Sequence[int]
    waits: Sequence[WaitData]


class WaitData(TypedDict):
    """A device that waits: from, to, its next operators, and what it waits for."""

    device: int
    span: tuple[int, int]
    nodes: Sequence[int]
    text: str


class TimelineGroupData(TypedDict):
    """Operators of a layer or of an equal block; a group comes after its parent."""

    label: str
    kind: str
    parent: int | None  # position of the surrounding group
    nodes: Sequence[int]  # ids of the nodes that are in no inner group


class TimelineData(TypedDict):
    """Draws what ran when: tracks, nested slices, flows between them, counters."""

    type: Literal["timeline"]
    title: str
    notes: Sequence[str]
    span: tuple[int, int]
    tracks: Sequence[TrackData]
    names: Sequence[str]
    roles: Sequence[str]  # those of viz/pages/style.py
    slices: SlicesData
    typical: int  # number of the step that the page opens at
    flows: Sequence[tuple[int, int]]  # positions of slices: the second waited for the first
    critical: Sequence[int]  # positions of slices, in order
    counters: Sequence[CounterData]
    details: NotRequired[Mapping[str, Mapping[str, Any]]]  # slice position -> further facts
    play: NotRequired[PlayData]  # only for a trace with a graph
    groups: NotRequired[Sequence[TimelineGroupData]]  # groups of the graph that can be folded


class ColumnData(TypedDict):
    """A column of a table."""

    label: str
    unit: Unit


class TableData(TypedDict):
    """Draws a table that sorts, filters and downloads as CSV."""

    type: Literal["table"]
    title: str
    notes: Sequence[str]
    columns: Sequence[ColumnData]
    rows: Sequence[Sequence[str | float | None]]
    totals: NotRequired[Sequence[str | float | None]]
    sort: NotRequired[tuple[int, Literal["up", "down"]]]  # column, direction
    bars: NotRequired[Sequence[int]]  # columns that show a bar behind the figure
    nodes: NotRequired[Sequence[Sequence[int]]]  # per row: its nodes
    file: NotRequired[str]  # name of the CSV file


class PeakData(TypedDict):
    """The largest sum and its parts, largest first.

    Of each part: name, kind, bytes, what makes it and what reads it last, and the nodes of both.
    """

    time: int
    bytes: int
    parts: Sequence[tuple[str, str, int, str, str, Sequence[int]]]


class DeviceMemoryData(TypedDict):
    """Live bytes of one device, stacked by kind; values hold until the next time."""

    name: str
    times: Sequence[int]
    kinds: Mapping[str, Sequence[int]]  # kind -> bytes at each time, bottom of the stack first
    work_area: NotRequired[Sequence[int]]  # of machine code, a line apart
    peak: PeakData


class MemoryData(TypedDict):
    """Draws memory over time, a chart per device with its peak."""

    type: Literal["memory"]
    title: str
    notes: Sequence[str]
    devices: Sequence[DeviceMemoryData]
    looks: Mapping[str, str]  # by kind of memory, in the order of the stack, whose colour it has
    view: tuple[int, int]  # the span shown at first: the counted steps, and the peaks


class StageData(TypedDict):
    """The graph after one pass (the first stage: before any); ids are those of `PassesData`."""

    name: str
    note: str  # e.g. "changed nothing"
    nodes: NotRequired[Sequence[int]]  # left out with links if the pass changed nothing
    links: NotRequired[Sequence[tuple[int, int]]]
    added: Sequence[int]
    removed: Sequence[int]  # nodes that only the previous stage has
    changed: Sequence[int]
    replaced: Sequence[tuple[int, Sequence[int]]]  # an added node, and those that it replaces


class PassNodeData(TypedDict):
    """A node of any stage; the same node keeps its id in all of them."""

    id: int
    name: str
    detail: str
    role: str
    device: int | None
    lines: Sequence[str]  # all details
    line: NotRequired[str]  # the user's line that made it
    kernels: NotRequired[Sequence[int]]  # positions in `listings` of its own machine code


class PassesData(TypedDict):
    """Draws what each pass changed; a node has one place in all stages.

    Texts are as in a graph file: the user's statements by file and line, texts of functions, and
    which of them declare operators.
    """

    type: Literal["passes"]
    title: str
    notes: Sequence[str]
    lines: Mapping[str, str]
    listings: Sequence[Listing]
    declarations: Mapping[str, int]
    nodes: Sequence[PassNodeData]
    stages: Sequence[StageData]


class SideData(TypedDict):
    """One of two runs that are compared."""

    name: str
    step: float  # seconds


class CompareData(TypedDict):
    """Draws two runs side by side, the largest difference first."""

    type: Literal["compare"]
    title: str
    notes: Sequence[str]
    sides: tuple[SideData, SideData]
    # bars of the waterfall: name, seconds, text with the interval, certain, nodes
    causes: Sequence[tuple[str, float, str, bool, Sequence[int]]]
    # name, seconds before, seconds after, nodes before
    rows: Sequence[tuple[str, float, float, Sequence[int]]]
    unmatched: tuple[Sequence[str], Sequence[str]]  # only before, only after


class SeriesData(TypedDict):
    """A line of a chart."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    dashed: NotRequired[bool]


class AxisData(TypedDict):
    """An axis of a chart."""

    label: str
    unit: Unit


class ChartData(TypedDict):
    """Draws lines over a common axis; the figures stand below as a table."""

    type: Literal["chart"]
    title: str
    notes: Sequence[str]
    x: AxisData
    y: AxisData
    series: Sequence[SeriesData]


class FigureData(TypedDict):
    """A number that stands out."""

    label: str
    value: float | None
    unit: Unit
    hint: NotRequired[str]


class BarData(TypedDict):
    """A bar of parts that add up, e.g. where the time of a device went: name, value, look."""

    label: str
    unit: Unit
    parts: Sequence[tuple[str, float, str]]  # the look is one of viz/pages/looks.py


class SentenceData(TypedDict):
    """A finding, with the nodes that it mentions."""

    text: str
    tone: Literal["plain", "good", "warn"]
    nodes: NotRequired[Sequence[int]]
    step: NotRequired[int]  # in which the timeline shows it


class StepsData(TypedDict):
    """The time of every step, including slow first ones that are not counted."""

    numbers: Sequence[int]
    seconds: Sequence[float]
    left_out: int
    median: float


class SectionData(TypedDict):
    """A heading with its content."""

    heading: str
    figures: NotRequired[Sequence[FigureData]]
    steps: NotRequired[StepsData]
    bars: NotRequired[Sequence[BarData]]
    sentences: NotRequired[Sequence[SentenceData]]
    code: NotRequired[Sequence[str]]  # lines to copy into a script


class TextData(TypedDict):
    """Draws findings: figures, bars and sentences under headings."""

    type: Literal["text"]
    title: str
    notes: Sequence[str]
    sections: Sequence[SectionData]


class StackData(TypedDict):
    """Several views under each other in one tab, e.g. a chart and its table."""

    type: Literal["stack"]
    title: str
    notes: Sequence[str]
    views: Sequence[ViewData]


class RunData(TypedDict):
    """Views of one run, as tabs within a tab of a page of several runs."""

    type: Literal["run"]
    title: str
    notes: Sequence[str]
    views: Sequence[ViewData]


ViewData = (
    GraphData
    | TimelineData
    | TableData
    | MemoryData
    | PassesData
    | CompareData
    | ChartData
    | TextData
    | StackData
    | RunData
)
"""Any view of the page; `type` says which, `title` names its tab."""
