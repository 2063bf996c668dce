"""The settings that ``docs/deployment.md`` names exist in Dask."""

import re
import shlex
import sys
from pathlib import Path
from unittest import mock

import distributed
import yaml
from distributed.cli import dask_scheduler, dask_worker

from tests.guides import ROOT, programs

PAGE = (ROOT / "docs/deployment.md").read_text(encoding="utf-8")
MAIN = {"scheduler": dask_scheduler.main, "worker": dask_worker.main}


def test_commands(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("ca.pem", "cert.pem", "key.pem"):
        Path(name).touch()
    given = re.findall(r"^ {4}.*\bdask (scheduler|worker)(.*)$", PAGE, re.MULTILINE)
    assert len(given) == 5
    for part, options in given:
        MAIN[part].make_context(part, shlex.split(options))


def test_programs(monkeypatch):
    """They call what there is, with arguments that it takes."""
    for name in ("Client", "SSHCluster"):
        found = mock.create_autospec(getattr(distributed, name))
        monkeypatch.setattr(distributed, name, found)
    monkeypatch.setitem(sys.modules, "dask_jobqueue", mock.MagicMock())
    names: dict = {}
    for program in programs("docs/deployment.md"):
        exec(program, names)
    assert names["security"].require_encryption
    assert names["security"].tls_client_key == "key.pem"


def test_pods():
    (manifest,) = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    spec = yaml.safe_load(manifest)["spec"]
    for part, main in MAIN.items():
        (container,) = spec[part]["spec"]["containers"]
        assert container["args"][:2] == ["dask", part]
        main.make_context(part, container["args"][2:])
    opened = {port["name"] for port in spec["scheduler"]["spec"]["containers"][0]["ports"]}
    assert {port["targetPort"] for port in spec["scheduler"]["service"]["ports"]} == opened


def test_image():
    """The image has what it copies, and starts a scheduler."""
    steps = dict(re.findall(r"^([A-Z]+) (.*)$", (ROOT / "Dockerfile").read_text(), re.MULTILINE))
    assert steps["CMD"] == '["dask", "scheduler"]'
    kept = re.findall(r"^!(.*)$", (ROOT / ".dockerignore").read_text(), re.MULTILINE)
    assert [name for name in kept if not (ROOT / name).exists()] == []
