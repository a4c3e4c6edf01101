"""A whole output on a local disk in, the same on an object store out.

scratch/x.bin  x.idx  x.manifest.json
           |      |             |      put one after the other: a manifest is
           v      v             v      only there when all else is
s3://bucket/x.bin  .idx  .manifest.json
"""

import errno
from pathlib import Path, PurePath

from hpgrain import object_store
from hpgrain.manifest import corpus_files, manifest_path
from hpgrain.tools import storage


def local_name(name: PurePath, *, scratch: Path | None) -> Path:
  """What to call a corpus as it is written: that, if it is on a disk."""
  if not storage.is_url(name):
    return Path(name)
  assert scratch is not None, "a store needs a scratch folder"
  return scratch / name.name


def upload(local: Path, name: PurePath, *, overwrite: bool) -> None:
  """Puts all files of a local corpus, the manifest last, and removes them.

  Two runs may do so at once, if they have the same: the second finds what the
  first has put.

  Args:
    local: the name of the corpus that is there: a pair's prefix, or an
      ArrayRecord's path.
    name: of the corpus on the store.
    overwrite: replace other objects that have the names. What would go with
      the old ones is removed first, so that nothing old lies beside what is
      new.

  Raises:
    FileExistsError: another object has one of the names.
    OSError: the store refused one. What is there lacks its manifest.
  """
  # A .bin before its .idx, without which it is no pair.
  files = [*map(Path, corpus_files(local).values()), Path(manifest_path(local))]
  targets = [name.with_name(path.name) for path in files]
  if overwrite:
    for target in reversed(targets[1:]):
      storage.remove([target])
  for path, target in zip(files, targets):
    _put(path, str(target), overwrite=overwrite)
    path.unlink()


def _put(path: Path, url: str, *, overwrite: bool) -> None:
  """Puts one file; finding the same there is as good."""
  # Asked first: a large file is only refused when all of it is sent, and some
  # stores take a conditional put for any other.
  there = not overwrite and object_store.exists(url)
  if not there:
    try:
      object_store.put_file(path, url, create=not overwrite)
    except FileExistsError:
      there = True
  if there and not object_store.holds(url, path):
    raise FileExistsError(
      errno.EEXIST,
      "another run wrote another content meanwhile. Give another output"
      " prefix, or allow it with --overwrite (overwrite=True)",
      url,
    )
