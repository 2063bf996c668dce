"""Writes small archives of the form that data sets have."""

import io
import tarfile
import zipfile


def tar(path, files):
    """Write a compressed archive: content as bytes by name."""
    path.parent.mkdir(exist_ok=True)
    with tarfile.open(path, "w:gz") as archive:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))


def zipped(path, files):
    """Likewise, as a zip file."""
    path.parent.mkdir(exist_ok=True)
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
