"""The flags that both preparation commands have, and what they stand for."""

import argparse
import os
from pathlib import Path
from typing import Any

from hpgrain.tools.encoders import BACKENDS, SPECIAL_TOKENS_IN_TEXT
from hpgrain.tools.engine_flags import EPILOG, add_engine_flags, parse_flags
from hpgrain.tools.options import (
  FORMATS,
  ON_BAD_RECORD,
  PACK_TAIL,
  Options,
)


def add_output_flags(parser: argparse.ArgumentParser) -> None:
  """Adds --json-keys and --output-prefix."""
  parser.add_argument(
    "--json-keys",
    nargs="+",
    default=["text"],
    metavar="KEY",
    help="the keys of a record that hold texts; each gives a pair"
    " PREFIX_KEY_document (default: text)",
  )
  parser.add_argument(
    "--output-prefix",
    required=True,
    metavar="PREFIX",
    help="path or URL (s3://, gs://) and beginning of the name of what is"
    " written; missing folders are made",
  )


def add_tokenizer_flags(parser: argparse.ArgumentParser, *, name: str) -> None:
  """Adds the tokenizer's flags, of which the first has the name given."""
  parser.add_argument(
    name,
    required=True,
    metavar="TOKENIZER",
    help="a Hugging Face tokenizer: a folder with tokenizer.json, or a name on"
    " the hub; other kinds are not supported",
  )
  add_boolean(
    parser,
    "--tokenizer-use-fast",
    default=True,
    help="use the fast tokenizer where there are two",
  )
  add_boolean(
    parser,
    "--trust-remote-code",
    default=False,
    help="let the tokenizer's repository run its own Python code here",
  )


def add_flow_flags(parser: argparse.ArgumentParser) -> None:
  """Adds what both commands do with records, after their own flags."""
  add_boolean(
    parser,
    "--append-eod",
    default=True,
    help="end each non-empty document with the tokenizer's EOS, or its SEP if"
    " it has no EOS",
  )
  parser.add_argument(
    "--workers",
    type=int,
    default=8,
    metavar="N",
    help="the most processes to use, no more than there are cores; a multiple"
    " of --partitions. Output does not depend on it (default: 8)",
  )
  parser.add_argument(
    "--partitions",
    type=int,
    default=1,
    metavar="N",
    help="deal the records to N partitions in turn; the pair holds one"
    " partition after the other (default: 1)",
  )
  parser.add_argument(
    "--keep-sequential-samples",
    action="store_true",
    help="make partitions blocks of consecutive records, so that the pair has"
    " the input's order",
  )
  parser.add_argument(
    "--pack-to-seq-len",
    type=int,
    metavar="N",
    help="lay the documents of a partition end to end and cut records of N + 1"
    " tokens; the tail is dropped, never padded (default: keep documents"
    " whole)",
  )
  parser.add_argument(
    "--keep-partition-files",
    action="store_true",
    help="write the records of each partition as JSON Lines too, to"
    " PREFIX_partition_P.jsonl",
  )


def add_our_flags(parser: argparse.ArgumentParser) -> None:
  """Adds the flags that only these commands have."""
  group = parser.add_argument_group("more")
  group.add_argument(
    "--log-interval",
    type=int,
    default=1000,
    metavar="N",
    help="documents between progress lines, where stderr is no terminal; 0"
    " for none (default: 1000)",
  )
  group.add_argument(
    "--overwrite",
    action="store_true",
    help="replace an output that is there (default: refuse), and start over"
    " where another request left unfinished work",
  )
  group.add_argument(
    "--on-bad-record",
    choices=ON_BAD_RECORD,
    default="error",
    help="what to do with a record that is no JSON object with texts under the"
    " keys: stop, or leave it out and note it in the manifest (default: error)",
  )
  group.add_argument(
    "--max-bad-records",
    type=int,
    default=1000,
    metavar="N",
    help="stop when more are left out than this (default: 1000)",
  )
  group.add_argument(
    "--shuffle",
    type=int,
    metavar="SEED",
    help="put the records in an order that follows from SEED, before all else"
    " (default: the input's order)",
  )
  group.add_argument(
    "--format",
    choices=FORMATS,
    default="indexed",
    help="what to write: PREFIX_KEY_document.bin and .idx, which training"
    " reads, or PREFIX_KEY_document.array_record (default: indexed)",
  )
  group.add_argument(
    "--pack-tail",
    choices=PACK_TAIL,
    default="drop",
    help="a partition's tail that fills no record: drop it, or carry it to the"
    " next partition, so that only one is lost (default: drop)",
  )
  group.add_argument(
    "--tokenizer-backend",
    choices=BACKENDS,
    default="auto",
    help="what encodes; all give the same ids. auto takes gigatoken if it is"
    " installed and agrees with Hugging Face on a sample of the input (default:"
    " auto)",
  )
  group.add_argument(
    "--special-tokens-in-text",
    choices=SPECIAL_TOKENS_IN_TEXT,
    default="as_is",
    help="a text that spells out a special token: give it the token's id, as"
    " Hugging Face does, encode it like any text, or take the record for a bad"
    " one (default: as_is)",
  )
  group.add_argument(
    "--work-dir",
    metavar="DIR",
    help="where unfinished work lies, a folder or a URL (default: beside the"
    " output)",
  )
  group.add_argument(
    "--scratch-dir",
    metavar="DIR",
    help="local folder for what is on its way to or from an object store; it"
    " takes about twice the output (default: the system's for temporary files)",
  )
  add_engine_flags(group)


def flow_options(flags: argparse.Namespace) -> dict[str, Any]:
  """The fields of `Options` that these flags decide."""
  names = (
    "append_eod",
    "workers",
    "partitions",
    "keep_sequential_samples",
    "pack_to_seq_len",
    "keep_partition_files",
    "log_interval",
    "overwrite",
    "on_bad_record",
    "max_bad_records",
    "shuffle",
    "format",
    "pack_tail",
    "tokenizer_backend",
    "special_tokens_in_text",
    "work_dir",
    "scratch_dir",
    "runner",
    "beam_options",
    "ray_address",
    "shard_index",
    "num_shards",
    "merge_only",
    "output_prefix",
  )
  values = {name: getattr(flags, name) for name in names}
  return values | {"json_keys": tuple(flags.json_keys)}


def local_name(name: str) -> str:
  """A path with its ~ replaced, as a shell does only where it stands first."""
  return os.fspath(Path(name).expanduser()) if name.startswith("~") else name


def add_boolean(
  parser: argparse.ArgumentParser, name: str, *, default: bool, help: str
) -> None:
  """Adds a flag that takes true or false, or stands alone for true."""
  parser.add_argument(
    name,
    type=_boolean,
    nargs="?",
    const=True,
    default=default,
    metavar="true|false",
    help=f"{help} (default: {str(default).lower()})",
  )


def _boolean(text: str) -> bool:
  values = {"true": True, "false": False}
  if text.lower() not in values:
    raise argparse.ArgumentTypeError(f"expected true or false, got {text!r}")
  return values[text.lower()]


__all__ = [
  "EPILOG",
  "Options",
  "add_boolean",
  "add_flow_flags",
  "add_our_flags",
  "add_output_flags",
  "add_tokenizer_flags",
  "flow_options",
  "local_name",
  "parse_flags",
]
