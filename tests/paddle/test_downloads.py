"""Missing data sets are downloaded, here from a server in this process."""

import hashlib
import http.server
import pickle
import threading

import pytest

from dpexec.paddle.dataset import common

CONTENT = b"some rows\n" * 1000
MD5 = hashlib.md5(CONTENT).hexdigest()


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        found = self.path == "/set%2Frows.txt"
        self.send_response(200 if found else 404)
        self.send_header("Content-Length", str(len(CONTENT) if found else 0))
        self.end_headers()
        self.wfile.write(CONTENT if found else b"")

    def log_message(self, *args):
        pass


@pytest.fixture(scope="module")
def address():
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/set%2F"
        server.shutdown()
        thread.join()


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setattr(common, "DATA_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    return tmp_path / "home"


@pytest.mark.parametrize("save_name", [None, "mine.txt"])
def test_what_is_not_there_is_fetched_once(address, home, save_name):
    path = common.download(f"{address}rows.txt", "set", MD5, save_name)
    assert path == str(home / "set" / (save_name or "set%2Frows.txt"))
    assert common.md5file(path) == MD5
    assert common.download("http://127.0.0.1:1/set%2Frows.txt", "set", MD5, save_name) == path


def test_a_file_of_that_plain_name_is_taken_as_it_is(home):
    (home / "set").mkdir(parents=True)
    (home / "set" / "rows.txt").write_text("others")
    path = common.download("http://127.0.0.1:1/set%2Frows.txt", "set", MD5)
    assert path == str(home / "set" / "rows.txt")


@pytest.mark.parametrize(
    ("name", "md5", "problem"),
    [("rows.txt", "0" * 32, "its MD5 sum is"), ("nothing.txt", MD5, "HTTP Error 404")],
)
def test_what_cannot_be_fetched_leaves_nothing(address, home, name, md5, problem):
    match = rf"set needs the file .*set/{name}, and http.*{problem}.*put the original {name} there"
    with pytest.raises(FileNotFoundError, match=match):
        common.download(f"{address}{name}", "set", md5)
    assert not list((home / "set").iterdir())


def test_samples_are_split_for_trainers(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    common.split(lambda: iter(range(7)), 3, "part-%d.pickle")
    assert pickle.loads((tmp_path / "part-2.pickle").read_bytes()) == [6]
    readers = [common.cluster_files_reader("part-*.pickle", 2, trainer) for trainer in (0, 1)]
    assert [list(read()) for read in readers] == [[0, 1, 2, 6], [3, 4, 5]]
    for function in (common.split, common.cluster_files_reader):
        with pytest.raises(TypeError, match="should be callable"):
            function("x", 1, 0, 3)
