"""A damaged file of a checkpoint is rejected with its name, and changes nothing."""

import io
import json
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

import dpexec as fluid
from dpexec.checkpoint import Checkpoints, Resumed
from dpexec.checkpoint.files import Folder
from dpexec.engine.core.errors import EnforceNotMet

OLD = Path(__file__).parents[1] / "fixtures" / "checkpoints" / "step-0000000003.npz"
"""Written by dpexec when the format had version 1, by the training below."""

NAME = OLD.name


class Trained:
    """A net on two replicas in a scope of its own, as after its startup program."""

    def __init__(self):
        main, startup = fluid.Program(), fluid.Program()
        main.random_seed = startup.random_seed = 1
        with fluid.program_guard(main, startup), fluid.unique_name.guard():
            x = fluid.data("x", [None, 3])
            loss = fluid.layers.mean(fluid.layers.batch_norm(fluid.layers.fc(x, 2)))
            fluid.optimizer.Momentum(0.1, 0.9).minimize(loss)
        self.scope = fluid.Scope()
        self.exe = fluid.Executor(fluid.CPUPlace())
        self.exe.run(startup, scope=self.scope)
        self.compiled = fluid.CompiledProgram(main).with_data_parallel(
            loss.name, places=[fluid.CPUPlace()] * 2
        )

    def checkpoints(self, folder):
        return Checkpoints(self.exe, folder, self.compiled, every=3, scope=self.scope)

    def train(self, folder):
        """Three steps, and a checkpoint."""
        with self.checkpoints(folder) as saved:
            for _ in range(3):
                feed = {"x": np.arange(12, dtype="float32").reshape(4, 3)}
                self.exe.run(self.compiled, feed, scope=self.scope)
                saved.step({"epoch": 1})
        return folder / NAME

    def state(self):
        names = sorted(self.scope.local_var_names())
        return {name: np.array(self.scope.find_var(name).get_tensor()).tobytes() for name in names}

    def resume(self, folder):
        with self.checkpoints(folder) as saved:
            return saved.resume()


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    return Trained().train(tmp_path_factory.mktemp("saved"))


def refused(folder, path, step=3):
    """What reading says; it must name the file."""
    with pytest.raises(EnforceNotMet, match=re.escape(str(path))) as raised:
        Folder(folder).read(step)
    return str(raised.value)


def test_every_byte_counts(tmp_path, saved):
    whole, path = saved.read_bytes(), tmp_path / NAME
    rng = np.random.RandomState(1)
    for at in range(len(whole)):
        flipped = whole[at] ^ 1 << rng.randint(8)
        path.write_bytes(whole[:at] + bytes([flipped]) + whole[at + 1 :])
        assert "is damaged" in refused(tmp_path, path)


def test_every_length_is_refused_but_the_right_one(tmp_path, saved):
    whole, path = saved.read_bytes(), tmp_path / NAME
    for size in [*range(0, len(whole), 97), *range(len(whole) - 100, len(whole))]:
        path.write_bytes(whole[:size])
        assert "is damaged" in refused(tmp_path, path)
    path.write_bytes(whole + b"\0")
    assert "is damaged" in refused(tmp_path, path)
    path.write_bytes(whole[: len(whole) // 2] + whole)
    assert "is damaged" in refused(tmp_path, path)


def test_what_is_refused_leaves_the_state_as_it_was(tmp_path, saved):
    trained = Trained()
    before, whole = trained.state(), saved.read_bytes()
    for at in (10, len(whole) // 2, len(whole) - 1):
        (tmp_path / NAME).write_bytes(whole[:at] + b"?" + whole[at + 1 :])
        with pytest.raises(EnforceNotMet, match="remove the file to resume from the checkpoint be"):
            trained.resume(tmp_path)
        assert trained.state() == before
    shutil.copy(saved, tmp_path)
    assert trained.resume(tmp_path) == Resumed(3, {"epoch": 1})
    assert trained.state() != before


def test_a_file_under_another_name_is_refused(tmp_path, saved):
    other = tmp_path / "step-0000000007.npz"
    shutil.copy(saved, other)
    assert "it holds step 3, not step 7 of its name" in refused(tmp_path, other, 7)
    other.rename(tmp_path / "step-7.npz")
    with pytest.raises(EnforceNotMet, match=r"has no checkpoint, but .*step-7\.npz"):
        Trained().resume(tmp_path)
    (tmp_path / "step-7.npz").rename(tmp_path / "step-0000000007.npz.part")  # of a killed process
    assert Trained().resume(tmp_path) == Resumed(0, None)


# ---- contents that a whole file can have


def rewritten(path, change):
    """Write a file of version 1 anew, with another manifest: it has no digest of the whole."""
    with zipfile.ZipFile(OLD) as archive:
        contents = {name: archive.read(name) for name in archive.namelist()}
    manifest = json.loads(contents["manifest.json"])
    change(manifest, contents)
    contents["manifest.json"] = json.dumps(manifest).encode()
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in contents.items():
            archive.writestr(name, content)


def test_files_of_version_1_are_read(tmp_path):
    shutil.copy(OLD, tmp_path)
    trained = Trained()
    assert trained.resume(tmp_path) == Resumed(3, {"epoch": 1})
    found = Folder(tmp_path).read(3)
    for entry, array in found.arrays:
        if "replica" not in entry:
            tensor = trained.scope.find_var(entry["variable"]).get_tensor()
            assert np.array_equal(np.array(tensor), array)
    rewritten(tmp_path / NAME, lambda manifest, _: None)
    assert Folder(tmp_path).read(3).about == found.about


def of_array(number, **facts):
    return lambda manifest, _: manifest["arrays"][number].update(facts)


def _removed(manifest, contents):
    del manifest["arrays"][-1]


def _member_removed(manifest, contents):
    del contents["2.npy"]


def _renamed(manifest, contents):
    contents["one.npy"] = contents.pop("1.npy")


def _huge(manifest, contents):
    manifest["arrays"][0]["shape"] = [2**60]
    made = io.BytesIO()
    header = {"descr": "<f4", "fortran_order": False, "shape": (2**60,)}
    np.lib.format.write_array_header_1_0(made, header)
    contents["0.npy"] = made.getvalue()


def _objects(manifest, contents):
    made = io.BytesIO()
    np.lib.format.write_array(made, np.array([object]), allow_pickle=True)
    contents["0.npy"] = made.getvalue()


WRONG = {
    "array of another variable": (of_array(0, variable="other"), "'other', which is not declared"),
    "array removed": (_removed, "not of the files that there are"),
    "file removed": (_member_removed, "not of the files that there are"),
    "file renamed": (_renamed, "not of the files that there are"),
    "array twice": (
        lambda m, _: m["arrays"][1].update(variable=m["arrays"][0]["variable"]),
        "array 1 is a second one",
    ),
    "replica beyond": (of_array(-1, replica=2), "is of replica 2 of program 0"),
    "parts without the first": (
        of_array(0, kind="rows", part=1),
        "array 0 is part 1 of '.*', which has 0",
    ),
    "parts of nothing known": (of_array(0, kind="x", part=0), "1 arrays are no value of kind 'x'"),
    "part of a tensor": (of_array(0, part=0), "array 0 has no 'kind'"),
    "too few parts": (of_array(0, kind="rows", part=0), "1 arrays are no value of kind 'rows'"),
    "program beyond": (of_array(-1, program=1), "is of replica 1 of program 1"),
    "huge": (_huge, "damaged"),
    "objects": (_objects, "damaged"),
    "shape": (of_array(0, shape=[77]), "shape of '.*' is"),
    "shape of words": (of_array(0, shape="[2]"), "'shape' of array 0 is"),
    "type": (of_array(0, dtype="int64"), "dtype of '.*' is"),
    "no format": (lambda m, _: m.pop("format"), "has no 'format'"),
    "other format": (lambda m, _: m.update(format="x"), "its format is 'x'"),
    "version of words": (lambda m, _: m.update(version="1"), "'version' of the manifest is '1'"),
    "later version": (lambda m, _: m.update(version=2), "does not end in its SHA-256"),
    "version to come": (lambda m, _: m.update(version=4), "has version 4 of the format"),
    "no extra": (lambda m, _: m.pop("extra"), "has no 'extra'"),
    "no programs": (lambda m, _: m.pop("programs"), "has no 'programs'"),
    "no runs": (lambda m, _: m["programs"][0].pop("runs"), "program 0 has no 'runs'"),
    "more of programs": (lambda m, _: m["programs"][0].update(x=1), r"program 0 has \['x'\]"),
    "no variables": (lambda m, _: m.pop("variables"), "has no 'variables'"),
    "variables of numbers": (
        lambda m, _: m["variables"].update({"fc_0.w_0": 7}),
        "fc_0.w_0 is declared as 7",
    ),
    "other step": (lambda m, _: m.update(step=4), "it holds step 4"),
}


@pytest.mark.parametrize("case", WRONG)
def test_manifests_that_say_something_else_are_refused(tmp_path, case):
    change, message = WRONG[case]
    rewritten(tmp_path / NAME, change)
    assert re.search(message, refused(tmp_path, tmp_path / NAME))
    trained = Trained()
    before = trained.state()
    with pytest.raises(EnforceNotMet):
        trained.resume(tmp_path)
    assert trained.state() == before


def test_a_variable_that_would_keep_its_value_is_named(tmp_path):
    def change(manifest, contents):
        last = len(manifest["arrays"]) - 1
        while "replica" in manifest["arrays"][last]:
            last -= 1
        for number in range(last, len(manifest["arrays"])):
            del contents[f"{number}.npy"]
        del manifest["arrays"][last:]

    rewritten(tmp_path / NAME, change)
    trained = Trained()
    before = trained.state()
    with pytest.raises(EnforceNotMet, match=r"step-0000000003\.npz has no value for variable "):
        trained.resume(tmp_path)
    assert trained.state() == before


@pytest.mark.parametrize("seed", range(4))
def test_damaged_files_of_version_1_do_no_harm(tmp_path, seed):
    whole, path = OLD.read_bytes(), tmp_path / NAME
    expected = Folder(OLD.parent).read(3)
    rng = np.random.RandomState(seed)
    for at in rng.randint(0, len(whole), 100):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1 << rng.randint(8)]) + whole[at + 1 :])
        try:
            found = Folder(tmp_path).read(3)
        except EnforceNotMet as error:
            if str(path) not in str(error):
                raise
        else:  # the date of a member, say
            assert found.about == expected.about
            for (_, one), (_, other) in zip(found.arrays, expected.arrays, strict=True):
                assert np.array_equal(one, other)


# ---- the system's errors


FULL = """
import resource, sys
import numpy as np
from dpexec.checkpoint.files import Folder, Stored
from dpexec.io.atomic import write_files
resource.setrlimit(resource.RLIMIT_FSIZE, (20000, 20000))  # as if the disk were full there
array = np.zeros(100_000)
for write in (
    lambda: Folder(sys.argv[1]).write(3, Stored({}, [({"variable": "w"}, array)])),
    lambda: write_files(sys.argv[1], {"w": lambda file: file.write(array.data)}),
):
    try:
        write()
    except OSError as error:
        print(error)
"""


def test_a_full_disk_names_the_file(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", FULL, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout.splitlines() == [
        f"[Errno 27] File too large: '{tmp_path / NAME}'",
        f"[Errno 27] File too large: '{tmp_path / 'w'}'",
    ]
    assert not list(tmp_path.iterdir())


def test_a_file_that_cannot_be_opened_is_named(tmp_path):
    (tmp_path / NAME).mkdir()
    with pytest.raises(IsADirectoryError, match=NAME):
        Trained().resume(tmp_path)
