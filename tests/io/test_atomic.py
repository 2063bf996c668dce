"""A save writes all of its files or none."""

import subprocess
import sys
from pathlib import Path

import pytest

from dpexec.io.atomic import stored, write_files

HERE = Path(__file__).parent


def content(text):
    return lambda file: file.write(text.encode())


def test_killing_a_save_leaves_a_whole_state(tmp_path):
    command = [sys.executable, str(HERE / "kill_saves.py"), str(tmp_path), "12"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert "12 kills" in done.stdout


def test_a_failing_writer_changes_nothing(tmp_path):
    write_files(tmp_path, {"a": content("old"), "b": content("old")})

    def fail(file):
        file.write(b"half")
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        write_files(tmp_path, {"a": content("new"), "b": fail})
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"a": "old", "b": "old"}


def test_an_interrupted_move_reads_as_finished_and_is_finished_by_the_next_save(tmp_path):
    write_files(tmp_path, {"a": content("old"), "deep/b": content("old")})
    saved = tmp_path / ".dpexec-saved" / "deep"
    saved.mkdir(parents=True)
    (saved / "b").write_text("new")
    assert stored(tmp_path, "deep/b").read_text() == "new"
    assert stored(tmp_path, "a").read_text() == "old"
    write_files(tmp_path, {"c": content("other")})
    assert (tmp_path / "deep" / "b").read_text() == "new"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "c", "deep"]
