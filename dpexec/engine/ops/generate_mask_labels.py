"""``generate_mask_labels``: target masks of the objects in the sampled regions."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpexec.engine.core.dtypes import VarType
from dpexec.engine.core.lod import Lod
from dpexec.engine.ir.opdef import Sample, Spec, dims_match, op, require
from dpexec.engine.ops._boxes import Numbers, require_boxes, to_host
from dpexec.engine.ops._masks import box_mask
from dpexec.engine.ops._proposals import joined, overlaps, require_image_info, same_sequences
from dpexec.engine.ops._sequences import Ints, offsets_spec, on_host, sequence_count

_OUTPUTS = "MaskRois RoiHasMaskInt32 MaskInt32"


def _infer(
    info: Spec, classes: Spec, classes_lod: Spec | None, crowd: Spec, _: Spec | None,
    segments: Spec, __: Spec | None, rois: Spec, rois_lod: Spec | None, labels: Spec,
    ___: Spec | None, *, num_classes: int, resolution: int,
) -> tuple[Spec, ...]:  # fmt: skip
    require_image_info(info)
    require_boxes(rois, "Rois")
    for name, spec in (("GtClasses", classes), ("IsCrowd", crowd), ("LabelsInt32", labels)):
        require(spec.dtype == VarType.INT32, f"{name} {spec} must hold int32")
    require(
        segments.rank == 2 and dims_match(segments.shape[1], 2),
        f"GtSegms {segments} must be (points, 2)",
    )
    require(
        min(num_classes, resolution) > 0,
        f"num_classes and resolution must be positive, but are {num_classes} and {resolution}",
    )
    lod = offsets_spec(sequence_count(rois_lod))
    level, columns = rois.lod_level, num_classes * resolution**2
    made = ((4, rois.dtype), (1, VarType.INT32), (columns, VarType.INT32))
    specs = [Spec((-1, width), dtype, lod_level=level) for width, dtype in made]
    return (*specs, lod, lod, lod)


def _samples(r: Any) -> list[Sample]:
    triangle, square = [[2.0, 3], [22, 4], [10, 24]], [[14.0, 2], [30, 3], [31, 20], [15, 22]]
    star = [[5.0, 5], [25, 6], [8, 22], [16, 1], [24, 24]]
    inputs = {
        "ImInfo": np.array([[40, 40, 1.0], [50, 40, 1.25]]),
        "GtClasses": np.array([[2], [1], [1]], np.int32),
        "IsCrowd": np.array([[0], [0], [0]], np.int32),
        "GtSegms": np.array(triangle + square + star + square),
        "GtSegms@LOD": Lod([[0, 2, 3], [0, 1, 3, 4], [0, 3, 7, 12, 16]]),
        "Rois": np.array([[1, 2, 20, 25], [30, 30, 39, 39], [9, 3, 33, 23], [12, 2, 40, 30.0]]),
        "Rois@LOD": Lod([[0, 3, 4]]),
        "LabelsInt32": np.array([[2], [0], [1], [1]], np.int32),
        "LabelsInt32@LOD": Lod([[0, 3, 4]]),
    }
    inputs |= {f"{slot}@LOD": Lod([[0, 2, 3]]) for slot in ("GtClasses", "IsCrowd")}
    attrs = {"num_classes": 3, "resolution": 8}
    background = inputs | {"LabelsInt32": np.array([[0], [0], [0], [1]], np.int32)}
    crowd = inputs | {"IsCrowd": np.array([[1], [0], [0]], np.int32)}
    return [
        Sample(inputs, attrs),
        Sample(background, attrs),
        Sample(crowd, attrs | {"resolution": 5}),
    ]


def _polygons(points: Numbers, lod: Lod, first: int, crowds: Ints) -> list[list[Numbers]]:
    """The polygons of every object of an image, without crowds.

    Args:
        points: corners of all polygons.
        lod: the offsets of objects in images, polygons in objects, and points in polygons.
        first: number of the first object of the image.
        crowds: whether each object is a crowd, which is not used.
    """
    objects, polygons = lod.levels[1].tolist(), lod.spans()
    return [
        [points[slice(*polygons[number])] for number in range(*objects[at : at + 2])]
        for at, crowd in enumerate(crowds.tolist(), first)
        if not crowd
    ]


def _around(polygons: list[Numbers]) -> Numbers:
    """The box around polygons."""
    points = np.concatenate(polygons)
    return np.concatenate([points.min(axis=0), points.max(axis=0)])


def _of_image(
    rois: Numbers, labels: Ints, objects: list[list[Numbers]], num_classes: int, resolution: int
) -> tuple[Numbers, Ints, Ints]:
    """Regions with an object, their numbers, and the masks; without any, a background region.

    Args:
        rois: regions, in the image before it was scaled.
        labels: their classes.
        objects: polygons of every object.
        num_classes: number of classes, including the background.
        resolution: height and width of the masks.
    """
    chosen = np.flatnonzero(labels > 0)
    if not len(chosen):
        chosen = np.flatnonzero(labels == 0)[:1]
    masks = np.full((len(chosen), num_classes, resolution**2), -1, np.int32)
    if objects:
        boxes = np.stack([_around(polygons) for polygons in objects])
        nearest = overlaps(rois[chosen], boxes.astype(rois.dtype)).argmax(axis=1)
        for row, (roi, label, best) in enumerate(
            zip(rois[chosen], labels[chosen], nearest, strict=True)
        ):
            if label > 0:
                masks[row, label] = box_mask(objects[best], roi, resolution).ravel()
    return rois[chosen], chosen.astype(np.int32)[:, None], masks.reshape(len(chosen), -1)


@op(
    "generate_mask_labels",
    inputs="ImInfo GtClasses GtClasses@LOD IsCrowd IsCrowd@LOD GtSegms GtSegms@LOD Rois Rois@LOD "
    "LabelsInt32 LabelsInt32@LOD",
    outputs=f"{_OUTPUTS} {' '.join(f'{slot}@LOD' for slot in _OUTPUTS.split())}",
    infer=_infer,
    no_grad=True,
    checks_values=True,
    samples=_samples,
)
def generate_mask_labels(
    xp: Any, info: Any, classes: Any, classes_lod: Lod, crowd: Any, crowd_lod: Lod,
    segments: Any, segments_lod: Lod, rois: Any, rois_lod: Lod, labels: Any, labels_lod: Lod,
    *, num_classes: int, resolution: int,
) -> tuple[Any, ...]:  # fmt: skip
    """Regions with an object, their numbers in the image, and masks of the objects in them.

    A region with a class gets the mask of the object whose box it overlaps most, in the
    ``resolution ** 2`` columns of its class: 1 inside, 0 outside. All other columns are -1. An
    image without such regions has a background region, whose columns are all -1. ``GtSegms`` are
    points with three levels of sequences: objects in images, polygons in objects, points in
    polygons.
    Source: Paddle op ``generate_mask_labels``; He and others, 2017 (Mask R-CNN).

    Raises:
        ValueError: GtClasses, IsCrowd and GtSegms, or Rois and LabelsInt32, do not have the same
            images.
    """
    infos, points, regions = to_host(info), to_host(segments), to_host(rois)
    kinds, found = on_host(classes), on_host(labels)
    unused = (on_host(crowd) != 0) | (kinds <= 0)
    outlined = Lod(segments_lod.levels[:1])
    known = same_sequences(GtClasses=classes_lod, IsCrowd=crowd_lod, GtSegms=outlined)
    spans = same_sequences(Rois=rois_lod, LabelsInt32=labels_lod)
    images = []
    for (first, last), (start, stop), about in zip(known, spans, infos, strict=True):
        objects = _polygons(points, segments_lod, first, unused[first:last])
        places, numbers, masks = _of_image(
            regions[start:stop] / about[2], found[start:stop], objects, num_classes, resolution
        )
        images.append((places * about[2], numbers, masks))
    made = [joined(xp, parts) for parts in zip(*images, strict=True)]
    return (*[value for value, _ in made], *[lod for _, lod in made])
