"""The package's log: one logger, `hpgrain`, that follows the program's.

Modules log under `logging.getLogger(__name__)`: which dataset was chosen,
splits, blends, caches, shapes; never a sample's text, and nothing per row. By
default the program's own level decides, so a program that sets up no logging
sees warnings only. `enable_dataset_logging("debug")` shows more, on chosen
processes, without touching the rest of the program.
"""

import logging
import sys
from collections.abc import Iterable

from hpgrain.nearest import did_you_mean

LOGGER_NAME = "hpgrain"

_LEVELS = {
  "debug": logging.DEBUG,
  "info": logging.INFO,
  "warn": logging.WARNING,
  "warning": logging.WARNING,
}
_said: set[str] = set()


def enable_dataset_logging(
  level: str | None = "debug", ranks: int | Iterable[int] | None = 0
) -> None:
  """Shows the package's records from `level` up on some processes.

  The other processes go on following the program's level. Records go to the
  program's handlers, or to stderr where it has none.

  Args:
    level: "debug", "info" or "warn"; None follows the program's level again,
      on every process.
    ranks: the process indices to show records on; None means all. They are
      compared when a record comes, so this may be called before
      `jax.distributed.initialize`; until then a process counts as 0.

  Raises:
    ValueError: another level, or ranks that are no process indices.
  """
  wanted = None if ranks is None else _as_ranks(ranks)
  if level is not None and level not in _LEVELS:
    raise ValueError(
      f"The log level must be 'debug', 'info' or 'warn', got {level!r}."
      f"{did_you_mean(level, _LEVELS)}"
    )
  logger = logging.getLogger(LOGGER_NAME)
  for handler in list(logger.handlers):
    if isinstance(handler, _RankHandler):
      logger.removeHandler(handler)
  logger.setLevel(logging.NOTSET)
  logger.propagate = level is None
  if level is not None:
    # The handler passes records on itself: a filter on this logger would not
    # see those of the loggers below it.
    logger.addHandler(_RankHandler(_LEVELS[level], wanted))
    logger.setLevel(logging.DEBUG)


def log_once(
  logger: logging.Logger, level: int, message: str, *args: object
) -> None:
  """Logs `message` unless this process has logged the same one before."""
  text = message % args if args else message
  if text not in _said:
    _said.add(text)
    logger.log(level, message, *args)


class _RankHandler(logging.Handler):
  """Passes records on if they are for this process, or for all the same."""

  def __init__(self, level: int, ranks: frozenset[int] | None) -> None:
    super().__init__()
    self._level = level
    self._ranks = ranks
    self.setFormatter(
      logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s")
    )

  def emit(self, record: logging.LogRecord) -> None:
    """Hands `record` to the program's handlers, or prints it."""
    root = logging.getLogger()
    shown = self._ranks is None or _process_index() in self._ranks
    least = self._level if shown else root.getEffectiveLevel()
    if record.levelno < least:
      return
    if root.handlers:
      root.handle(record)
    else:
      print(self.format(record), file=sys.stderr)


def _as_ranks(ranks: int | Iterable[int]) -> frozenset[int]:
  values = [ranks] if isinstance(ranks, int) else ranks
  values = list(values) if isinstance(values, Iterable) else [values]
  for rank in values:
    if not isinstance(rank, int) or isinstance(rank, bool) or rank < 0:
      raise ValueError(
        "ranks must be a process index, several of them, or None for all; got"
        f" {ranks!r}."
      )
  return frozenset(values)


def _process_index() -> int:
  # Asking jax for the index starts its backend, after which
  # jax.distributed.initialize fails: so only a distributed program is asked.
  jax = sys.modules.get("jax")
  if jax is None or not jax.distributed.is_initialized():
    return 0
  return jax.process_index()
