"""Objects of a store (S3, GCS and others) by their URLs, through fsspec.

  put_file(local, url)     the object is there whole, or is not
  put_file(.., create=True)  only if none is there: the first one wins
  get_file(url, local)     the whole object; open_reader(url) reads ranges

There is no rename and no lock, and a file opened for writing is committed
even where an error ends it, so objects are only ever put from what is whole.
Listings are never kept: other processes write too. Whatever a store's package
raises becomes one OSError that names the URL.
"""

import contextlib
import errno
import io
import math
import os
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path, PurePath
from typing import Any, BinaryIO, TypeVar

# What stores call the mark that another content changes.
_VERSIONS = ("ETag", "etag", "md5Hash", "generation", "mtime", "LastModified")
# Our extra that has the package for a kind of store.
_EXTRAS = {"s3": "s3", "s3a": "s3", "gs": "gcs", "gcs": "gcs"}
# Whose errors are the store's, whatever they are called.
_PACKAGES = frozenset(
  "aiobotocore aiohttp adlfs azure botocore fsspec gcsfs google requests s3fs"
  " urllib3".split()
)
# Each range that is read in order is so much larger than the one before, up
# to that. The packages' own 50 MB would read most objects many times over.
_GROWTH, _MOST_AHEAD = 4, 4 << 20
_COMPARED = 8 << 20
# Requests at once. Each waits for the network most of its time.
_THREADS = 16
# S3 takes 10,000 parts. Memory holds four.
_PART_BYTES, _MAX_PARTS, _PARTS_AT_ONCE = 16 << 20, 9_000, 4
_CONFLICT_TRIES = 5
_NO_BUCKET = "there is no such bucket"
# The stores whose conditional puts are known to hold.
_WRITABLE = ("s3", "gs")

_T = TypeVar("_T")
_U = TypeVar("_U")


def is_url(path: object) -> bool:
  """Whether a path is the URL of an object rather than a local path."""
  return "://" in str(path)


def as_path(name: str | os.PathLike[str]) -> PurePath:
  """The path that a name stands for: `epath.Path` of a URL, else `Path`.

  Raises:
    ValueError: the URL is of a store that is not written to, or does not name
      a bucket and something in it.
  """
  if not is_url(name):
    return Path(name)
  url = os.fspath(name)
  scheme, rest = url.split("://", 1)
  if scheme not in _WRITABLE:
    allowed = " or ".join(f"{one}://" for one in _WRITABLE)
    raise ValueError(
      f"{url} cannot be written to. Give a local path, or a URL that begins"
      f" with {allowed}."
    )
  bucket, _, key = rest.partition("/")
  if not bucket or not key.strip("/"):
    raise ValueError(
      f"{url} must name a bucket and something in it, such as"
      f" {scheme}://bucket/folder."
    )
  from etils import epath

  return epath.Path(url)


def filesystem(url: str) -> tuple[Any, str]:
  """The fsspec file system of a URL, and the path in it.

  Raises:
    ValueError: the package for this kind of store is missing, or there is no
      such kind.
  """
  kind = url.split("://", 1)[0]
  try:
    import fsspec

    with explained(url):
      return fsspec.core.url_to_fs(url, use_listings_cache=False)
  except (ImportError, ValueError) as error:
    how = "Install the package that reads this kind of store"
    if kind in _EXTRAS:
      how = f"Install it: pip install 'hpgrain[{_EXTRAS[kind]}]'"
    raise ValueError(f"{url} cannot be read: {error}. {how}.") from None


@contextlib.contextmanager
def explained(url: str) -> Iterator[None]:
  """Turns what a store's package raises into one OSError that names the URL.

  Raises:
    FileExistsError: something is there that was to be created.
    FileNotFoundError: the object or its bucket is not there.
    PermissionError: these credentials may not do that, or there are none.
    OSError: all other trouble.
  """
  try:
    yield
  except OSError as error:
    if url in str(error) or getattr(error, "filename", None):
      raise
    raise _named(error, url) from error
  except Exception as error:
    if type(error).__module__.split(".")[0] not in _PACKAGES:
      raise
    raise _named(error, url) from error


def size_and_version(url: str) -> tuple[int, str]:
  """An object's size in bytes and what changes when it is written again.

  Raises:
    FileNotFoundError: there is none.
  """
  info = _info(url)
  marks = [str(info[mark]) for mark in _VERSIONS if info.get(mark)]
  return int(info["size"]), next(iter(marks), "")


def kind(url: str) -> str:
  """ "file", "folder" (names go on below it) or "nothing".

  Raises:
    FileNotFoundError: there is no such bucket.
    OSError: the store cannot be asked.
  """
  try:
    return "folder" if _info(url)["type"] == "directory" else "file"
  except FileNotFoundError as error:
    if _NO_BUCKET in str(error):
      raise
    return "nothing"


def exists(url: str) -> bool:
  """Whether there is an object of just this name."""
  return kind(url) == "file"


def list_files(folder: str) -> dict[str, int]:
  """Names and sizes of the objects directly in a folder.

  Raises:
    FileNotFoundError: there is no such bucket. A folder without objects is
      none, and has none.
  """
  system, name = filesystem(folder)
  try:
    with explained(folder):
      found = system.ls(name, detail=True)
  except FileNotFoundError as error:
    if _NO_BUCKET in str(error):
      raise
    return {}
  below = f"{name.strip('/')}/"
  return {
    info["name"].strip("/").removeprefix(below): int(info["size"])
    for info in found
    if info["type"] == "file" and info["name"].strip("/").startswith(below)
  }


def open_reader(url: str) -> BinaryIO:
  """Opens an object to be read in ranges."""
  system, name = filesystem(url)
  size = size_and_version(url)[0]
  return _Reader(system, name, url=url, size=size)


def read_bytes(url: str) -> bytes:
  """A small object's content.

  Raises:
    FileNotFoundError: there is none.
  """
  system, name = filesystem(url)
  with explained(url):
    return system.cat_file(name)


def put_bytes(data: bytes, url: str, *, create: bool = False) -> None:
  """Writes a small object at once.

  Args:
    data: its content.
    url: its name.
    create: only if there is none; else what is there is replaced.

  Raises:
    FileExistsError: there is one and `create` is on.
  """
  system, name = filesystem(url)
  mode = "create" if create else "overwrite"
  _put(url, create, lambda: system.pipe_file(name, data, mode=mode))


def put_file(local: Path, url: str, *, create: bool = False) -> None:
  """Writes an object from a local file; a large one in parts.

  Raises:
    FileExistsError: there is one and `create` is on.
  """
  system, name = filesystem(url)
  tuning: dict[str, Any] = {}
  if "s3" in system.protocol:
    size = math.ceil(local.stat().st_size / _MAX_PARTS)
    tuning = {
      "chunksize": max(_PART_BYTES, size),
      "max_concurrency": _PARTS_AT_ONCE,
    }
  mode = "create" if create else "overwrite"
  _put(
    url,
    create,
    lambda: system.put_file(str(local), name, mode=mode, **tuning),
  )


def get_file(url: str, local: Path) -> None:
  """Reads an object to a local file, which may be half there on errors.

  Raises:
    FileNotFoundError: there is no such object.
  """
  system, name = filesystem(url)
  # In one stream: in parts, S3's package holds half a gigabyte.
  tuning = {"max_concurrency": 1} if "s3" in system.protocol else {}
  with explained(url):
    system.get_file(name, str(local), **tuning)


def holds(url: str, local: Path) -> bool:
  """Whether an object is there and has a local file's bytes."""
  try:
    if size_and_version(url)[0] != local.stat().st_size:
      return False
    with local.open("rb") as ours, open_reader(url) as theirs:
      while data := ours.read(_COMPARED):
        if theirs.read(len(data)) != data:
          return False
  except FileNotFoundError:
    return False
  return True


def remove(urls: Iterable[str]) -> None:
  """Removes objects; those that are not there are gone already."""
  for _ in in_parallel(_remove, urls):
    pass


def in_parallel(
  call: Callable[[_T], _U], arguments: Iterable[_T]
) -> Iterator[_U]:
  """The results of calls that wait for a store, in order, many at once."""
  with ThreadPoolExecutor(_THREADS) as pool:
    try:
      yield from pool.map(call, arguments)
    finally:
      pool.shutdown(cancel_futures=True)


class _Reader(io.RawIOBase):
  """An object's bytes, in ranges that grow while they are read in order."""

  def __init__(self, system: Any, name: str, *, url: str, size: int) -> None:
    super().__init__()
    self._system = system
    self._name = name
    self._url = url
    self._size = size
    self._position = 0
    # What was fetched last, and where it begins.
    self._data = b""
    self._start = 0

  def readable(self) -> bool:
    return True

  def seekable(self) -> bool:
    return True

  def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
    origins = {
      io.SEEK_SET: 0,
      io.SEEK_CUR: self._position,
      io.SEEK_END: self._size,
    }
    self._position = max(origins[whence] + offset, 0)
    return self._position

  def tell(self) -> int:
    return self._position

  def read(self, size: int | None = -1) -> bytes:
    """`size` bytes (all, if negative or None), fewer only at the end."""
    left = max(self._size - self._position, 0)
    size = left if size is None or size < 0 else min(size, left)
    begin = self._position - self._start
    data = b""
    if 0 <= begin <= len(self._data):
      data = self._data[begin : begin + size]
      ahead = min(len(self._data) * _GROWTH, _MOST_AHEAD)
    else:
      # Somewhere else: perhaps only for a few bytes.
      ahead = 0
    self._position += len(data)
    if len(data) < size:
      missing = size - len(data)
      self._fetch(max(missing, ahead))
      if len(self._data) < missing:
        raise OSError(errno.EIO, "the object is shorter than it was", self._url)
      data += self._data[:missing]
      self._position += missing
    return data

  def readall(self) -> bytes:
    return self.read()

  def readinto(self, buffer: Any) -> int:
    data = self.read(len(buffer))
    buffer[: len(data)] = data
    return len(data)

  def _fetch(self, size: int) -> None:
    end = min(self._position + size, self._size)
    with explained(self._url):
      self._data = self._system.cat_file(
        self._name, start=self._position, end=end
      )
    self._start = self._position


def _info(url: str) -> dict[str, Any]:
  system, name = filesystem(url)
  with explained(url):
    return system.info(name)


def _put(url: str, create: bool, put: Callable[[], None]) -> None:
  """Puts; with `create`, tells apart what a store's answers may mean."""
  for left in reversed(range(_CONFLICT_TRIES)):
    try:
      with explained(url):
        put()
      return
    except FileExistsError:
      raise
    except OSError as error:
      if not create:
        raise
      # Not all stores say it in the words that their package knows.
      with contextlib.suppress(OSError):
        if exists(url):
          raise FileExistsError(
            errno.EEXIST, "another process wrote it", url
          ) from None
      # S3 refuses one of two that create the same object at once, and asks
      # for another try.
      if not left or "ConditionalRequestConflict" not in repr(error.__cause__):
        raise
      time.sleep(0.5)


def _remove(url: str) -> None:
  system, name = filesystem(url)
  with contextlib.suppress(FileNotFoundError), explained(url):
    system.rm_file(name)


def _named(error: Exception, url: str) -> OSError:
  """The error as an OSError of the same kind that names the URL."""
  said = " ".join(str(error).split()) or type(error).__name__
  name = type(error).__name__
  if isinstance(error, FileExistsError):
    return FileExistsError(errno.EEXIST, said, url)
  if isinstance(error, FileNotFoundError):
    if "specified bucket" in said:
      return FileNotFoundError(
        errno.ENOENT, f"{_NO_BUCKET}. Make it, or mend the URL", url
      )
    return FileNotFoundError(errno.ENOENT, "there is no such object", url)
  if isinstance(error, PermissionError) or "Credential" in name:
    return PermissionError(
      errno.EACCES,
      f"the store refused access ({said.rstrip('.')}). Check that the bucket"
      " is there and that the credentials in the environment may use it",
      url,
    )
  if isinstance(error, OSError):
    # S3's own words for it; the number is the package's guess.
    return OSError(error.errno or errno.EIO, error.strerror or said, url)
  return OSError(
    errno.EIO,
    f"the store cannot be used ({name}: {said.rstrip('.')}). Check the network,"
    " the endpoint and the credentials",
    url,
  )
