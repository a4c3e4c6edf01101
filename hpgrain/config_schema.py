"""The table of configuration keys: type, default, legal values, meaning.

Everything that is known about a key stands in its one line, here or, of the
data and their way into rows, in `config_schema_data.py`. `config.py` makes the
default tree, the checks and `docs/config.md` from it; `config_values.py`
checks one value, `config_rules.py` what several keys must agree on.
"""

from collections.abc import Mapping

from hpgrain.config_key import INT32_MAX, NUMBERS, Key, section
from hpgrain.config_schema_data import DATA_KEYS
from hpgrain.context_layout import LAYOUTS

# fmt: off
KEYS: tuple[Key, ...] = (
  *section("training",
    Key("global_batch_size", int, 8,
        "Rows of one optimizer step, over all processes; where a row has room"
        " for micro_batch_size examples, examples.", minimum=1),
    Key("micro_batch_size", int, 1,
        "Rows of one accumulation step; divides global_batch_size. Online and"
        " in packed rows: examples of full length that a row has room for.",
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
  *section("mesh",
    Key("axes", tuple, ("data", "cp", "tp"),
        "Mesh axes, outermost first; each has a size key of its name."),
    Key("sizes", NUMBERS, (),
        "The sizes of `axes` in their order, instead of a key for each, which"
        " a flag can set for axes of any name; -1 takes the devices left.",
        minimum=-1),
    Key("data_axes", tuple, ("data",), "The axes that share out rows."),
    Key("data", int, -1, "Devices along `data`; -1 takes those left.",
        minimum=-1),
    Key("cp", int, 1, "Devices along `cp`, which share out positions.",
        minimum=-1),
    Key("tp", int, 1, "Devices along `tp`, which share the same rows.",
        minimum=-1),
    Key("sequence_parallel", bool, False, "Share positions over `tp` too."),
  ),
  *section("model_assets.tokenizer",
    Key("pretrained_model_name_or_path", str, None,
        "A Hugging Face tokenizer's folder or name."),
    Key("use_fast", bool, True, "Take the fast tokenizer."),
    Key("trust_remote_code", bool, False,
        "Run code that comes with the tokenizer."),
  ),
  *DATA_KEYS,
  *section("get_batch",
    Key("source_type", str, None,
        "As dataset.kind, which it must name; unset follows it.",
        legal=("indexed", "online")),
    Key("attention_mode", str, "segment_ids",
        "What attention gets: `segment_ids`, a mask made from them, or"
        " (`compressed`) what `attention_adapter` makes of them.",
        legal=("segment_ids", "dense", "compressed")),
    Key("attention_adapter", str, None,
        "For which kernel packed_seq_params are made: `splash`, `pallas_gpu`,"
        " `cudnn`, `transformer_engine`, `context_parallel`, or a function of"
        " yours, 'package.module:function' (docs/attention.md).",
        only="compressed"),
    Key("reset_position_ids", bool, False,
        "Positions begin at 0 in every document."),
    Key("reset_attention_mask", bool, True,
        "One segment a document; False: one a row."),
    Key("eod_mask_loss", bool, False, "No loss where the input ends one."),
    Key("mask_boundary_labels", bool, True,
        "No loss where the label begins another document.", only="cut"),
    Key("labels_are_shifted", bool, True,
        "The loader shifts labels; False: the model does."),
    Key("sliding_window", int, None, "Keys each query may see.", minimum=1,
        maximum=INT32_MAX - 1),
    Key("window_keys", str, "inclusive",
        "The window counts the query's own key; `reference`: one key more.",
        legal=("inclusive", "reference"), only="window"),
    Key("context_parallel_layout", str, "contiguous",
        "Which positions a `cp` device holds: a run of them (`contiguous`), a"
        " chunk from each end (`zigzag`), every cp-th (`striped`), or a chunk"
        " from each end of every document (`document_zigzag`).",
        legal=LAYOUTS),
    Key("source_ids", bool, False,
        "Add source_ids to the batch: the number of each token's source, from"
        " 0 on; -1 at padding."),
  ),
  *section("debug",
    Key("check_dataset", str, None,
        "Level of the package's log; unset follows the program's.",
        legal=("debug", "info", "warn")),
  ),
  *section("model",
    Key("layers", int, 2, "Blocks of the example's transformer.", minimum=1),
    Key("width", int, 128, "Its width.", minimum=1),
    Key("heads", int, 4, "Its attention heads; divide width.", minimum=1),
    Key("attention", str, "dense",
        "How it attends: by an S x S mask, or with positions left on their"
        " `cp` devices, to which keys are sent (`ring`, `all_gather`), by"
        " segment_ids or what the adapter `context_parallel` makes.",
        legal=("dense", "ring", "all_gather")),
  ),
  *section("optimizer",
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
  "datasets_type": "say data_transform.data_type, as 'pretokenized'",
  "streaming": "say dataset.data_config.dataset_type, as 'iterable'",
  "num_samples": "rows are asked for by training.train_samples, and only"
  " order='megatron' depends on it",
}
