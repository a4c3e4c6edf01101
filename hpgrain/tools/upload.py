"""A whole output on a local disk in, the same on an object store out.

scratch/x.bin  x.idx  x.manifest.json
           |      |             |      put one after the other: a manifest is
           v      v             v      only there when all else is
s3://bucket/x.bin  .idx  .manifest.json
"""

import errno
import glob
from pathlib import Path, PurePath

from hpgrain import object_store
from hpgrain.manifest import manifest_path
from hpgrain.tools import storage


def local_prefix(prefix: PurePath, *, scratch: Path | None) -> Path:
  """Where to write what is to have a prefix: there, if it is on a disk."""
  if not storage.is_url(prefix):
    return Path(prefix)
  assert scratch is not None, "a store needs a scratch folder"
  return scratch / prefix.name


def upload(local: Path, prefix: PurePath, *, overwrite: bool) -> None:
  """Puts all files of a local prefix, the manifest last, and removes them.

  Two runs may do so at once, if they have the same: the second finds what the
  first has put.

  Args:
    local: the prefix of the files that are there.
    prefix: of the objects.
    overwrite: replace other objects that have the names. What would go with
      the old ones is removed first, so that nothing old lies beside what is
      new.

  Raises:
    FileExistsError: another object has one of the names.
    OSError: the store refused one. What is there lacks its manifest.
  """
  manifest = Path(manifest_path(local))
  found = local.parent.glob(f"{glob.escape(local.name)}.*")
  # A .bin before its .idx, without which it is no pair.
  files = [*sorted(set(found) - {manifest}), manifest]
  targets = [prefix.with_name(path.name) for path in files]
  if overwrite:
    for target in reversed(targets[1:]):
      storage.remove([target])
  for path, target in zip(files, targets):
    _put(path, str(target), overwrite=overwrite)
    path.unlink()


def _put(path: Path, url: str, *, overwrite: bool) -> None:
  """Puts one file; finding the same there is as good."""
  try:
    object_store.put_file(path, url, create=not overwrite)
  except FileExistsError:
    if not object_store.holds(url, path):
      raise FileExistsError(
        errno.EEXIST,
        "another run wrote another content meanwhile. Give another output"
        " prefix, or allow it with --overwrite (overwrite=True)",
        url,
      ) from None
