"""Folders of this machine or of an object store, behind one file system interface.

Object stores are reached through deltalake's own client (Rust's object_store), which also commits the
tables. Credentials and endpoints come from the environment, for S3: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY,
AWS_REGION, AWS_ENDPOINT_URL and AWS_ALLOW_HTTP.
"""

from __future__ import annotations

import os
import re
from functools import cached_property
from pathlib import Path
from urllib.parse import unquote, urlparse

from deltalake.exceptions import DeltaError
from deltalake.fs import DeltaStorageHandler
from pyarrow import fs

from filtering.frozen import frozen
from schemas.errors import UsageError

FOLDER_MODE = 0o770
_CONNECTIONS = {
    "s3": "the bucket, AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION and AWS_ENDPOINT_URL",
    "gs": "the bucket, and GOOGLE_APPLICATION_CREDENTIALS",
    "hdfs": "the NameNode (hdfs://HOST:PORT/FOLDER), or the core-site.xml and hdfs-site.xml in HADOOP_CONF_DIR",
    **dict.fromkeys(
        ("az", "azure", "adl", "abfs", "abfss"),
        "the container, AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY",
    ),
}
"""By the scheme of a URI, what decides whether the place can be reached."""
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*:/")


@frozen
class Storage:
    """A folder. ``root`` is an absolute path of this machine, or a URI such as ``s3://bucket/folder``."""

    root: str

    @classmethod
    def at(cls, text: str, base: Path = Path()) -> Storage:
        """``text`` is a URI or a path. Relative paths are from ``base``, by default the working directory.

        Raises UsageError if it names no place.
        """
        if text.startswith("file:"):
            text = unquote(urlparse(text).path)
        if not _SCHEME.match(text):
            return cls(str(local_path(text, base)))
        root = re.sub("^s3a:", "s3:", text).rstrip("/")
        if not _SCHEME.match(root):
            raise UsageError(f"{text} is not usable: it names no bucket")
        return cls(root)

    @property
    def is_local(self) -> bool:
        """Whether it is a folder of this machine."""
        return _SCHEME.match(self.root) is None

    @property
    def scheme(self) -> str:
        """Of a URI, such as ``s3``; empty for a folder of this machine."""
        return "" if self.is_local else self.root.partition(":")[0]

    @property
    def connection(self) -> str:
        """What to check if the place cannot be reached."""
        return _CONNECTIONS.get(self.scheme, "the URI, and the settings of this kind of storage in the environment")

    @cached_property
    def file_system(self) -> fs.FileSystem:
        """Paths in it are relative to the root. Raises UsageError if the root cannot be the one of an object store."""
        if self.is_local:
            return fs.SubTreeFileSystem(self.root, fs.LocalFileSystem())
        try:
            return fs.PyFileSystem(DeltaStorageHandler(self.root))
        except (DeltaError, OSError) as error:
            raise UsageError(f"{self.root} cannot be read ({error_text(error)}): check {self.connection}") from None

    def child(self, name: str) -> Storage:
        """A folder in this folder."""
        return Storage(f"{self.root}/{name}")

    def make(self) -> None:
        """Creates the folder if it is missing; an object store needs none."""
        if self.is_local:
            Path(self.root).mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)

    def is_folder(self) -> bool:
        """Whether the folder exists. An object store has no empty folders: a folder exists there if it has files."""
        if self.is_local:
            return Path(self.root).is_dir()
        return bool(self.files(recursive=True))

    def why_no_folder(self) -> str | None:
        """What is wrong with a path that is not a folder, to follow its name in a message; None if it is one."""
        if self.is_folder():
            return None
        return "is a file" if self.is_local and Path(self.root).exists() else "does not exist"

    def files(self, folder: str = "", recursive: bool = False) -> list[fs.FileInfo]:
        """The files in a folder, empty if it does not exist."""
        selector = fs.FileSelector(folder, allow_not_found=True, recursive=recursive)
        return [info for info in self.file_system.get_file_info(selector) if info.type == fs.FileType.File]

    def check_access(self) -> None:
        """Raises UsageError if the files in the folder may not be read, or the object store cannot be reached."""
        try:
            for file in self.files():
                if self.is_local:
                    with Path(self.root, file.path).open("rb"):
                        pass
        except UsageError:
            raise
        except Exception as error:
            what = "its permissions" if self.is_local else self.connection
            reason = os.strerror(error.errno) if isinstance(error, OSError) and error.errno else error_text(error)
            raise UsageError(f"{self.root} cannot be read ({reason}): check {what}") from None

    def names(self) -> set[str]:
        """The names of the files and folders in the folder, empty if it does not exist."""
        selector = fs.FileSelector("", allow_not_found=True)
        return {info.base_name for info in self.file_system.get_file_info(selector)}

    def clear(self) -> None:
        """Removes all files in the folder."""
        for file in self.files(recursive=True):
            self.file_system.delete_file(file.path)

    def has_file(self, path: str) -> bool:
        """Whether there is a file at a path, which is relative to the folder."""
        return bool(self.file_system.get_file_info([path])[0].type == fs.FileType.File)

    def read(self, path: str) -> bytes | None:
        """The content of a file; None if there is no such file."""
        if not self.has_file(path):
            return None
        with self.file_system.open_input_stream(path) as file:
            return bytes(file.read())

    def write(self, path: str, content: bytes) -> None:
        """Writes a small file, in the place of one that is there."""
        # deltalake's files accept bytes only, which a buffer of PyArrow's gives them.
        with self.file_system.open_output_stream(path, buffer_size=1 << 16) as file:
            file.write(content)

    def __reduce__(self) -> tuple[type[Storage], tuple[str]]:
        return type(self), (self.root,)


def local_path(text: str, base: Path = Path()) -> Path:
    """A path of this machine, absolute; ``~`` is the home of a user. Raises UsageError if it names no place."""
    if not text:  # as from a variable that is not set
        raise UsageError("a path is empty: give the name of a folder or file")
    try:
        return (base / Path(text).expanduser()).resolve()
    except (RuntimeError, ValueError) as error:
        raise UsageError(f"{text} is not usable: {str(error).rstrip('.')}") from None


def error_text(error: Exception) -> str:
    """An error in one line, without the colours, the indented causes and the XML of an object store's error."""
    text = _COLOUR.sub("", str(error)).partition("<?xml")[0].replace("\u21b3", ":")
    return " ".join(text.split()).rstrip(" :")


def spark_path(storage: Storage) -> str:
    """The path of the folder for Spark."""
    return re.sub("^s3:", "s3a:", storage.root)


def spark_file(path: str) -> str:
    """The path of one file for Spark's readers of files, which take paths as patterns."""
    return re.sub(r"([\\*?\[\]{}])", r"\\\1", path)
