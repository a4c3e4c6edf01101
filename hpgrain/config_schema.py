"""The table of configuration keys: type, default, legal values, meaning.

Everything that is known about a key stands in its one line here. `config.py`
makes the default tree, the checks and `docs/config.md` from it;
`config_values.py` checks one value, `config_rules.py` what several keys must
agree on.
"""

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

# What a value may be: a Python type, or the form that `data_paths.py` reads.
PATHS = "paths"
# An order of rows: a file's path or a sequence of integers.
ROW_MAP = "row map"

_INT32_MAX = 2**31 - 1


@dataclasses.dataclass(frozen=True)
class Key:
  """One configuration key.

  Attributes:
    name: where it stands, with dots; inside a `_section` the last part only.
    kind: `int`, `float`, `str`, `bool`, `tuple` (of strings), or `PATHS`.
    default: its value when nothing is said; None is unset.
    meaning: one line for people.
    legal: the values allowed, where they can be listed.
    minimum: the least value allowed.
    maximum: the greatest value allowed.
    refused: values other programs know, with why they cannot be had here.
    aliases: other ways to write a value.
  """

  name: str
  kind: type | str
  default: Any
  meaning: str
  legal: tuple[Any, ...] = ()
  minimum: int | float | None = None
  maximum: int | float | None = None
  refused: Mapping[Any, str] = dataclasses.field(default_factory=dict)
  aliases: Mapping[Any, Any] = dataclasses.field(default_factory=dict)


_NOT_YET = "it is not in this version"
_ONLINE = "tokenizing while training is not in this version"
_PACKING = "packing while training is not in this version"


def _section(name: str, *keys: Key) -> Iterator[Key]:
  for key in keys:
    yield dataclasses.replace(key, name=f"{name}.{key.name}")


# fmt: off
KEYS: tuple[Key, ...] = (
  *_section("training",
    Key("global_batch_size", int, 8,
        "Rows of one optimizer step, over all processes.", minimum=1),
    Key("micro_batch_size", int, 1,
        "Rows of one accumulation step; divides global_batch_size.",
        minimum=1),
    Key("train_iters", int, 1000, "Optimizer steps of the run.", minimum=1),
    Key("train_samples", int, None,
        "Rows that order `megatron` is made for; unset: train_iters batches,"
        " fixed at the first start.",
        minimum=1, maximum=2**62),
    Key("eval_iters", int, 10,
        "Most batches of one evaluation; 0 turns evaluation off.", minimum=0),
    Key("eval_interval", int, 0,
        "Steps between evaluations; 0 is only at the end.", minimum=0),
    Key("seed", int, 0, "Decides the order of rows and the weights' start.",
        minimum=0),
    Key("log_interval", int, 10, "Steps between log lines.", minimum=1),
    Key("checkpoint_interval", int, 0,
        "Steps between checkpoints; 0 is only at the end.", minimum=0),
  ),
  *_section("mesh",
    Key("axes", tuple, ("data", "cp", "tp"),
        "Mesh axes, outermost first; each has a size key of its name."),
    Key("data_axes", tuple, ("data",), "The axes that share out rows."),
    Key("data", int, -1, "Devices along `data`; -1 takes those left.",
        minimum=-1),
    Key("cp", int, 1, "Devices along `cp`, which share out positions.",
        minimum=-1),
    Key("tp", int, 1, "Devices along `tp`, which share the same rows.",
        minimum=-1),
    Key("sequence_parallel", bool, False, "Share positions over `tp` too."),
  ),
  *_section("model_assets.tokenizer",
    Key("pretrained_model_name_or_path", str, None,
        "A Hugging Face tokenizer's folder or name."),
    Key("use_fast", bool, True, "Take the fast tokenizer."),
    Key("trust_remote_code", bool, False,
        "Run code that comes with the tokenizer."),
  ),
  *_section("model_assets",
    Key("chat_template", str, None,
        "A chat template; refused, since indexed data has no chats."),
  ),
  *_section("dataset",
    Key("kind", str, "indexed", "What the data is.", legal=("indexed",),
        refused={"online": _ONLINE}),
    Key("data_path", PATHS, None,
        "Prefixes of .idx/.bin pairs, shared by the splits."),
    Key("train_data_path", PATHS, None, "Prefixes of the train split alone."),
    Key("valid_data_path", PATHS, None, "Prefixes of the valid split alone."),
    Key("test_data_path", PATHS, None, "Prefixes of the test split alone."),
  ),
  *_section("dataset.data_config",
    Key("seq_length", int, 4096, "Positions of a row.", minimum=1,
        maximum=_INT32_MAX - 1),
    Key("split", str, "969, 30, 1",
        "Shares of train, valid and test in `data_path`."),
    Key("order", str, "stable",
        "The order of rows: `stable` cuts documents as stored, `documents`"
        " mixes them each epoch, `megatron` is Megatron-core's.",
        legal=("stable", "documents", "megatron")),
    Key("mock_data", bool, False, "Made-up rows; no file is read."),
    Key("is_dataset_from_mr", bool, False,
        "The sequences are records cut to seq_length (+ 1) beforehand."),
    Key("simple_blend", str, "no",
        "How pre-cut sources without weights take turns.",
        legal=("no", "inter", "intra"), aliases={False: "no"}),
    Key("data_lazy_load", bool, False, "Open files at first use."),
    Key("skip_data_check", bool, False,
        "Leave out the check of record lengths."),
    Key("add_extra_token_to_sequence", bool, True,
        "Read one token more, the last position's label."),
    Key("drop_last_partial_validation_sequence", bool, True,
        "Drop the tail of valid and test that does not fill a row."),
    Key("create_ltor_fields_in_dataloader", bool, False,
        "Masks as Megatron's loader makes them: documents end at eod_id, and"
        " the loader's model_inputs has attention_mask, True where masked."),
    Key("data_cache_path", str, None,
        "Folder of index caches, for orders with an index; unset: in memory."),
    Key("data_index_cache", bool, None,
        "Known to the reference; has no meaning here."),
    Key("contiguous", bool, True,
        "The .bin holds the sequences back to back, in order."),
    Key("mmap", bool, True, "Map the .bin; False reads it with pread."),
    Key("max_open_files", int, 512,
        "Most files kept mapped at a time, over all loaders of the process;"
        " the last `build` decides.", minimum=2),
    Key("vocab_size", int, None,
        "Number of ids; unset takes the tokenizer's, else the manifest's.",
        minimum=1, maximum=_INT32_MAX),
    Key("eod_id", int, None, "The id that ends a document.", minimum=0,
        maximum=_INT32_MAX),
    Key("pad_id", int, None, "The id of padding in pre-cut records.",
        minimum=0, maximum=_INT32_MAX),
  ),
  *_section("dataloader",
    Key("type", str, "fixed", "How rows are grouped.", legal=("fixed",),
        refused={"dynamic": "indexed rows all have seq_length positions"}),
    Key("sampler_type", str, None,
        "`cyclic` is endless, `single` is one epoch; unset is `single` with"
        " order `megatron`, else `cyclic`.",
        legal=("cyclic", "single")),
    Key("data_sharding", int, None,
        "Buckets of a source's rows that take turns, each permuted in itself;"
        " with `cyclic`.",
        minimum=1),
    Key("data_rearrange_map", ROW_MAP, None,
        "Which row of train stands at each place: a .npy or .json file, or a"
        " tuple."),
    Key("epochs", int, None, "Epochs of train; unset is endless.", minimum=1),
    Key("end_of_data", str, None,
        "The last batch, if not full; unset drops it in train, pads it else.",
        legal=("drop", "pad")),
    Key("drop_last", bool, None,
        "The reference's name: True is end_of_data `drop`, False is `pad`."),
    Key("consumed_samples", int, 0, "The row of train to begin at.",
        minimum=0),
    Key("prefetch", int, 2,
        "Batches made ahead by a thread; 0 makes each when it is asked for.",
        minimum=0),
  ),
  *_section("get_batch",
    Key("source_type", str, "indexed", "Must name what dataset.kind does.",
        legal=("indexed",), refused={"online": _ONLINE}),
    Key("attention_mode", str, "segment_ids",
        "What attention gets: `segment_ids`, or a mask made from them.",
        legal=("segment_ids", "dense"),
        refused={"compressed": "it needs a kernel adapter, and this version "
                               "has none"}),
    Key("reset_position_ids", bool, False,
        "Positions begin at 0 in every document."),
    Key("reset_attention_mask", bool, True,
        "One segment a document; False: one a row."),
    Key("eod_mask_loss", bool, False, "No loss where the input ends one."),
    Key("mask_boundary_labels", bool, True,
        "No loss where the label begins another document."),
    Key("labels_are_shifted", bool, True,
        "The loader shifts labels; False: the model does."),
    Key("sliding_window", int, None, "Keys each query may see.", minimum=1),
    Key("window_keys", str, "inclusive",
        "The window counts the query's own key; `reference`: one key more.",
        legal=("inclusive", "reference")),
    Key("context_parallel_layout", str, "contiguous",
        "Which positions a `cp` device holds.", legal=("contiguous",),
        refused={"zigzag": _NOT_YET, "striped": _NOT_YET}),
  ),
  *_section("debug",
    Key("check_dataset", str, None,
        "Level of the package's log; unset follows the program's.",
        legal=("debug", "info", "warn")),
  ),
  *_section("model",
    Key("layers", int, 2, "Blocks of the example's transformer.", minimum=1),
    Key("width", int, 128, "Its width.", minimum=1),
    Key("heads", int, 4, "Its attention heads; divide width.", minimum=1),
  ),
  *_section("optimizer",
    Key("learning_rate", float, 3e-3, "The highest learning rate.",
        minimum=0.0),
    Key("warmup", int, 20, "Steps up to it.", minimum=0),
    Key("weight_decay", float, 0.1, "AdamW's weight decay.", minimum=0.0),
    Key("clip", float, 1.0, "Norm that gradients are clipped to.",
        minimum=0.0),
  ),
  Key("prepare", str, None,
      "Data that launch/train.py makes in {workdir}/data first.",
      legal=("embedded_example",), aliases={"none": None}),
)
# fmt: on

BY_NAME: Mapping[str, Key] = {key.name: key for key in KEYS}

# "dataset" and "dataset.data_config", but no key.
SECTIONS: frozenset[str] = frozenset(
  ".".join(parts[:depth])
  for parts in (name.split(".") for name in BY_NAME)
  for depth in range(1, len(parts))
)

# Names that other programs, or data of another kind, would have: what to say.
FOREIGN: Mapping[str, str] = {
  "_target_": "name what to build in dataset.kind and dataloader.type",
  "collate_fn": "rows are stacked without being asked; leave it out",
  "data_transform": _ONLINE,
  **dict.fromkeys(
    (
      "cache_dir",
      "data_type",
      "dataset_type",
      "hf_config_name",
      "hf_dataset_name",
      "lengths",
      "max_seq_len",
      "shuffle",
      "shuffle_buffer_size",
      "split_by_data_parallel",
      "text_keys",
    ),
    f"it belongs to online data, and {_ONLINE}",
  ),
  **dict.fromkeys(
    (
      "length_buckets",
      "max_segments",
      "min_buffered_samples",
      "num_streams",
      "overlong",
      "pack_window",
      "packer",
      "plan_window",
      "segment_multiple",
      "token_budget",
    ),
    _PACKING,
  ),
  **dict.fromkeys(
    ("balance_rows", "balance_shares"),
    _NOT_YET,
  ),
  "num_samples": "rows are asked for by training.train_samples, and only"
  " order='megatron' depends on it",
}
