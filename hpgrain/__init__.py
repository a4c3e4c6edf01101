"""A JAX/Grain data loader for LLM training: corpora in, sharded batches out.

In the order of the flow: write and read tokenized corpora, turn documents
into rows, build the loaders of a run, save and restore their state.

A name is loaded when it is first used, so that a tool which only prepares
text never waits for JAX.
"""

import importlib
from types import ModuleType
from typing import TYPE_CHECKING, Any

try:
  from hpgrain import _kernels as _kernels
except ImportError as error:
  # A clone's folder stands before an installed package on the path.
  raise ImportError(
    f"hpgrain's C++ kernels are not built for {__path__[0]}: run"
    " `pip install -e .` in the clone it belongs to, or start Python in another"
    f" folder to use an installed hpgrain. ({error})"
  ) from error

if TYPE_CHECKING:
  from hpgrain import checkpoint as checkpoint
  from hpgrain import index as index
  from hpgrain.batch import loss_inputs as loss_inputs
  from hpgrain.batch import model_inputs as model_inputs
  from hpgrain.blend_samples import BlendSamples as BlendSamples
  from hpgrain.indexed_dataset import (
    build_indexed_text_dataset as build_indexed_text_dataset,
  )
  from hpgrain.log import enable_dataset_logging as enable_dataset_logging
  from hpgrain.loss import num_loss_tokens as num_loss_tokens
  from hpgrain.mock import MockSamples as MockSamples
  from hpgrain.online_dataset import (
    build_online_text_dataset as build_online_text_dataset,
  )
  from hpgrain.pipeline import Loaders as Loaders
  from hpgrain.pipeline import build as build
  from hpgrain.precut import PrecutSamples as PrecutSamples
  from hpgrain.records import IGNORE_INDEX as IGNORE_INDEX
  from hpgrain.records import RowPlans as RowPlans
  from hpgrain.samples import GPTSamples as GPTSamples
  from hpgrain.sources.indexed import IndexedReader as IndexedReader
  from hpgrain.sources.indexed import IndexedWriter as IndexedWriter

# Where each name above is that is no module.
_HOMES = {
  "loss_inputs": "batch",
  "model_inputs": "batch",
  "BlendSamples": "blend_samples",
  "build_indexed_text_dataset": "indexed_dataset",
  "enable_dataset_logging": "log",
  "num_loss_tokens": "loss",
  "MockSamples": "mock",
  "build_online_text_dataset": "online_dataset",
  "Loaders": "pipeline",
  "build": "pipeline",
  "PrecutSamples": "precut",
  "IGNORE_INDEX": "records",
  "RowPlans": "records",
  "GPTSamples": "samples",
  "IndexedReader": "sources.indexed",
  "IndexedWriter": "sources.indexed",
}


def __getattr__(name: str) -> Any:
  """Loads a public name the first time it is asked for."""
  home = _HOMES.get(name)
  if home is None:
    return _module(name)
  value = getattr(importlib.import_module(f"{__name__}.{home}"), name)
  globals()[name] = value
  return value


def _module(name: str) -> ModuleType:
  """Loads a module of the package, as `hpgrain.attention`."""
  path = f"{__name__}.{name}"
  if not name.startswith("_"):
    try:
      return importlib.import_module(path)
    except ModuleNotFoundError as error:
      # What the module itself imports and lacks is told as it is.
      if error.name != path:
        raise
  raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
  """What there is, loaded or not."""
  return sorted({*globals(), *_HOMES, "checkpoint", "index"})
