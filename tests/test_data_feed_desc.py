"""Descriptions of files in the text format of protobuf."""

import pytest

import dpexec as fluid

TEXT = """name: "MultiSlotDataFeed"
batch_size: 2
multi_slot_desc {
  slots {
    name: "words"
    type: "uint64"
    is_dense: false
    is_used: true
  }
  slots {
    name: "label"
    type: "float"
    shape: -1
    shape: 3
  }
}
pipe_command: "tr \\"a\\" b"
"""


def description(tmp_path, text):
    path = tmp_path / "data.proto"
    path.write_text(text)
    return fluid.DataFeedDesc(path)


def test_what_is_read_is_written(tmp_path):
    assert description(tmp_path, TEXT).desc() == TEXT
    flat = "# the format\n" + " ".join(TEXT.split("\n"))
    assert description(tmp_path, flat).desc() == TEXT


def test_what_is_set_is_written(tmp_path):
    desc = description(tmp_path, TEXT)
    desc.set_batch_size(128)
    desc.set_dense_slots(["words"])
    desc.set_use_slots(["label"])
    expected = TEXT.replace("batch_size: 2", "batch_size: 128").replace(
        "dense: false", "dense: true"
    )
    expected = expected.replace('"float"\n', '"float"\n    is_used: true\n')
    assert desc.desc() == expected
    with pytest.raises(ValueError, match=r"no slot 'other': .* words, label"):
        desc.set_use_slots(["other"])


def test_files_go_through_cat_if_nothing_is_said(tmp_path):
    desc = description(tmp_path, 'name: "Other"')
    assert desc.desc() == 'name: "Other"\npipe_command: "cat"\n'
    with pytest.raises(ValueError, match="this is Other"):
        desc.set_dense_slots([])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("colour: 3", "DataFeedDesc has no field 'colour'"),
        ("multi_slot_desc { name: 3 }", "MultiSlotDesc has no field 'name'"),
        ("multi_slot_desc { slots { size: 3 } }", "Slot has no field 'size'"),
        ("multi_slot_desc { slots {", "ends within a slot"),
        ("multi_slot_desc { slots { }", "ends within multi_slot_desc"),
        ("name = 3", "no text of a DataFeedDesc: 'name = 3'"),
        ("name: nobody", "no text of a DataFeedDesc: 'name: nobody'"),
    ],
)
def test_other_texts_are_refused(tmp_path, text, message):
    with pytest.raises(ValueError, match=message):
        description(tmp_path, text)
