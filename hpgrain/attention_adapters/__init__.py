r"""A batch's segments as attention kernels take them, made inside `jit`.

  name or function  ->  resolve  ->  adapter(AttentionInputs)
                                        -> packed_seq_params, arrays

  splash               SegmentIds of Pallas' TPU kernel
  pallas_gpu           segment ids of Pallas' GPU kernel
  cudnn                lengths and offsets of JAX's cuDNN attention
  transformer_engine   what a SequenceDescriptor is made of
  context_parallel     ids and positions, for ring and all-gather attention
  package.module:name  a function of the user's, see `by_keywords`

All are made from the batch's `segment_ids` alone, so that none can disagree
with the masks of `hpgrain.attention`. None makes an S x S array. An adapter
refuses what its kernel cannot do, with the reason.
"""

from collections.abc import Callable, Mapping
from typing import Any

from hpgrain.attention_adapters.by_keywords import KeywordAdapter, load
from hpgrain.attention_adapters.context_parallel import (
  adapt as to_context_parallel,
)
from hpgrain.attention_adapters.cudnn import adapt as to_cudnn
from hpgrain.attention_adapters.pallas_gpu import adapt as to_pallas_gpu
from hpgrain.attention_adapters.splash import adapt as to_splash
from hpgrain.attention_adapters.transformer_engine import (
  adapt as to_transformer_engine,
)
from hpgrain.attention_inputs import Adapter
from hpgrain.nearest import did_you_mean

ADAPTERS: Mapping[str, Adapter] = {
  "splash": to_splash,
  "pallas_gpu": to_pallas_gpu,
  "cudnn": to_cudnn,
  "transformer_engine": to_transformer_engine,
  "context_parallel": to_context_parallel,
}


def resolve(adapter: str | Callable[..., Any]) -> Adapter:
  """Returns the adapter that is meant.

  Args:
    adapter: a name of `ADAPTERS`; "package.module:function"; or a function of
      the keyword arguments that `by_keywords` lists. What `resolve` returned
      is returned as it is.

  Raises:
    ValueError: there is no such name, module or function, or it cannot be
      called with those arguments.
  """
  # By identity: an array, or another's object, compares as it likes.
  known = any(adapter is other for other in ADAPTERS.values())
  if known or isinstance(adapter, KeywordAdapter):
    return adapter  # type: ignore[return-value]
  if not isinstance(adapter, str):
    return KeywordAdapter(adapter)
  if adapter in ADAPTERS:
    return ADAPTERS[adapter]
  if ":" in adapter:
    return KeywordAdapter(load(adapter), adapter)
  raise ValueError(
    f"attention_adapter must be one of {tuple(ADAPTERS)}, or a function of"
    f" yours as 'package.module:function'; got {adapter!r}."
    f"{did_you_mean(adapter, ADAPTERS)}"
  )
