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
import math
import os
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path, PurePath
from typing import Any, BinaryIO, TypeVar

from hpgrain.object_errors import NO_BUCKET, explained, no_bucket
from hpgrain.object_reader import RangeReader

# What stores call the mark that another content changes.
_VERSIONS = ("ETag", "etag", "md5Hash", "generation", "mtime", "LastModified")
# Our extra that has the package for a kind of store.
_EXTRAS = {"s3": "s3", "s3a": "s3", "gs": "gcs", "gcs": "gcs"}
_COMPARED = 8 << 20
# Requests at once. Each waits for the network most of its time.
_THREADS = 16
# S3 takes 10,000 parts. Memory holds four.
_PART_BYTES, _MAX_PARTS, _PARTS_AT_ONCE = 16 << 20, 9_000, 4
_CONFLICT_TRIES = 5
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
    raise ValueError(f"{url} cannot be used: {error}. {how}.") from None


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
    if NO_BUCKET in str(error):
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
    if NO_BUCKET in str(error):
      raise
    return {}
  below = f"{name.strip('/')}/"
  return {
    info["name"].strip("/").removeprefix(below): int(info["size"])
    for info in found
    if info["type"] == "file" and info["name"].strip("/").startswith(below)
  }


def open_reader(url: str, *, size: int | None = None) -> BinaryIO:
  """Opens an object to be read in ranges.

  Args:
    url: of the object.
    size: of it in bytes; None asks the store.
  """
  system, name = filesystem(url)
  if size is None:
    size = size_and_version(url)[0]
  return RangeReader(system, name, url=url, size=size)


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
    except FileNotFoundError as error:
      if error.filename != url:
        # The local file.
        raise
      # Nothing else need be there.
      raise no_bucket(url) from None
    except OSError as error:
      if not create:
        raise
      # Not all stores say it in the words that their package knows.
      there = False
      with contextlib.suppress(OSError):
        there = exists(url)
      if there:
        raise FileExistsError(
          errno.EEXIST, "another process wrote it", url
        ) from None
      # S3 refuses one of two that create the same object at once, and asks
      # for another try.
      if not left or not _is_conflict(error):
        raise
      time.sleep(0.5)


def _is_conflict(error: BaseException | None) -> bool:
  while error is not None and "ConditionalRequestConflict" not in repr(error):
    error = error.__cause__
  return error is not None


def _remove(url: str) -> None:
  system, name = filesystem(url)
  with contextlib.suppress(FileNotFoundError), explained(url):
    system.rm_file(name)
