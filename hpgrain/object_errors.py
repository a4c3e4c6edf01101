"""Whatever a store's package raises in, one OSError that names the URL out."""

import contextlib
import errno
from collections.abc import Iterator

NO_BUCKET = "there is no such bucket"

# Whose errors are the store's, whatever they are called.
_PACKAGES = frozenset(
  "aiobotocore aiohttp adlfs azure botocore fsspec gcsfs google requests s3fs"
  " urllib3".split()
)


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


def no_bucket(url: str) -> FileNotFoundError:
  """Says that a URL's bucket is not there."""
  return FileNotFoundError(
    errno.ENOENT, f"{NO_BUCKET}. Make it, or mend the URL", url
  )


def _named(error: Exception, url: str) -> OSError:
  """The error as an OSError of the same kind that names the URL."""
  said = " ".join(str(error).split()) or type(error).__name__
  name = type(error).__name__
  if isinstance(error, FileExistsError):
    return FileExistsError(errno.EEXIST, said, url)
  if isinstance(error, FileNotFoundError):
    if "specified bucket" in said:
      return no_bucket(url)
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
