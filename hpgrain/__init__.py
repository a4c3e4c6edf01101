"""A JAX/Grain data loader for LLM training: corpora in, sharded batches out.

In the order of the flow: write and read tokenized corpora, turn documents
into rows, build the loaders of a run, save and restore their state.
"""

try:
  from hpgrain import _kernels as _kernels
except ImportError as error:
  # A clone's folder stands before an installed package on the path.
  raise ImportError(
    f"hpgrain's C++ kernels are not built for {__path__[0]}: run"
    " `pip install -e .` in the clone it belongs to, or start Python in another"
    f" folder to use an installed hpgrain. ({error})"
  ) from error

from hpgrain import checkpoint as checkpoint
from hpgrain import index as index
from hpgrain.batch import loss_inputs as loss_inputs
from hpgrain.batch import model_inputs as model_inputs
from hpgrain.batch import num_loss_tokens as num_loss_tokens
from hpgrain.blend_samples import BlendSamples as BlendSamples
from hpgrain.indexed_dataset import (
  build_indexed_text_dataset as build_indexed_text_dataset,
)
from hpgrain.log import enable_dataset_logging as enable_dataset_logging
from hpgrain.mock import MockSamples as MockSamples
from hpgrain.pipeline import Loaders as Loaders
from hpgrain.pipeline import build as build
from hpgrain.precut import PrecutSamples as PrecutSamples
from hpgrain.records import IGNORE_INDEX as IGNORE_INDEX
from hpgrain.records import RowPlans as RowPlans
from hpgrain.samples import GPTSamples as GPTSamples
from hpgrain.sources.indexed import IndexedReader as IndexedReader
from hpgrain.sources.indexed import IndexedWriter as IndexedWriter
