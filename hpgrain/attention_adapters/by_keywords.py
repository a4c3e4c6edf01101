"""A function of the user's as an adapter, by the arguments of the reference.

It is called inside `jit` with keyword arguments, all of them always:

  cu_seq_lens        int32[rows, max_segments + 1]: 0, the end of each segment,
                     and S from the last one on. Global and in the order of
                     the row, whatever the layout; padding at a row's end is a
                     segment by itself (`attention.cu_seq_lens`). -1 throughout
                     in a row that has more segments than max_segments.
  local_input_shape  (rows of cu_seq_lens, positions of a row that one
                     context-parallel rank holds), two ints.
  cp_rank            0 where cp_size is 1, else None: `jit` sees the global
                     batch, and one program is of all ranks. Inside
                     `shard_map` it is `jax.lax.axis_index("cp")`.
  cp_size            int, devices that a row is split over.
  cp_algorithm       str, the layout: "contiguous", "zigzag", "striped" or
                     "document_zigzag".
  causal             True.
  sliding_window     int, keys that a query sees, its own counted; None: all.

It returns a JAX array, or any pytree with one at least.
"""

import dataclasses
import importlib
import inspect
from collections.abc import Callable
from typing import Any

import jax

from hpgrain.attention_inputs import AttentionInputs
from hpgrain.nearest import did_you_mean

KEYWORDS = (
  "cu_seq_lens",
  "local_input_shape",
  "cp_rank",
  "cp_size",
  "cp_algorithm",
  "causal",
  "sliding_window",
)


@dataclasses.dataclass(frozen=True)
class KeywordAdapter:
  """Calls a function with what the reference's adapters get.

  Attributes:
    function: takes the keyword arguments above.
    name: what it is called in messages; None: its own.

  Raises:
    ValueError: it is not callable, or not with these arguments.
  """

  function: Callable[..., Any]
  name: str | None = None

  def __post_init__(self) -> None:
    if not callable(self.function):
      raise ValueError(
        f"attention_adapter {self._said} must be a function that takes the"
        f" keyword arguments {', '.join(KEYWORDS)}; it is a"
        f" {type(self.function).__name__}."
      )
    try:
      signature = inspect.signature(self.function)
    except (TypeError, ValueError):
      # Some that are written in C do not tell theirs.
      return
    try:
      signature.bind(**dict.fromkeys(KEYWORDS))
    except TypeError as error:
      raise ValueError(
        f"attention_adapter {self._said} is called with the keyword arguments"
        f" {', '.join(KEYWORDS)}, all of them; its own are {signature}:"
        f" {error}. Take those it has no use for as **others."
      ) from error

  @property
  def _said(self) -> str:
    own = getattr(self.function, "__qualname__", self.function)
    return repr(own if self.name is None else self.name)

  def __call__(self, inputs: AttentionInputs) -> Any:
    """Returns what the function makes of a batch.

    Raises:
      ValueError: it returns no array, so that a model would be told nothing
        of where segments end.
    """
    num_ranks = inputs.layout.num_ranks
    rows, length = inputs.segment_ids.shape
    made = self.function(
      cu_seq_lens=inputs.cu_seq_lens,
      local_input_shape=(rows, length // num_ranks),
      cp_rank=0 if num_ranks == 1 else None,
      cp_size=num_ranks,
      cp_algorithm=inputs.layout.name,
      causal=True,
      sliding_window=inputs.sliding_window,
    )
    if not any(isinstance(x, jax.Array) for x in jax.tree.leaves(made)):
      raise ValueError(
        f"attention_adapter {self._said} returned {made!r}, which holds no"
        " JAX array: attention would not know where segments end. Return what"
        " the kernel takes."
      )
    return made


def load(name: str) -> Any:
  """Imports what "package.module:function" names.

  Raises:
    ValueError: it has another form, or there is no such module or function.
      What goes wrong inside the module is raised as it is.
  """
  path, _, attribute = name.partition(":")
  if not path or not attribute or path.startswith("."):
    raise ValueError(
      "attention_adapter is written 'package.module:function' for a function"
      f" of yours, with the module's whole name; got {name!r}."
    )
  try:
    module = importlib.import_module(path)
  except ModuleNotFoundError as error:
    if error.name is None or not f"{path}.".startswith(f"{error.name}."):
      raise
    raise ValueError(
      f"attention_adapter={name!r}: there is no module {error.name!r}. It must"
      " be installed, or lie in a folder of PYTHONPATH."
    ) from error
  if not hasattr(module, attribute):
    raise ValueError(
      f"attention_adapter={name!r}: module {path!r} has no {attribute!r}."
      f"{did_you_mean(attribute, vars(module))}"
    )
  return getattr(module, attribute)
