r"""The command that turns a JSON Lines file into a pair that training reads.

Command to run:

python -m hpgrain.tools.offline_preparation \
  --dataset-name-or-path corpus.jsonl \
  --output-prefix data/train \
  --tokenizer-name-or-path gpt2
"""

import argparse
import os
import sys
import warnings
from collections.abc import Sequence

from hpgrain.manifest import Manifest
from hpgrain.tokenizer import load_tokenizer
from hpgrain.tools.corpus import check_request, prepare_corpus


def main(argv: Sequence[str] | None = None) -> int:
  """Runs the command line; returns the exit code."""
  flags = _parser().parse_args(argv)
  try:
    # Before the tokenizer, which takes seconds or a download to load.
    prefix = check_request(
      flags.dataset_name_or_path,
      output_prefix=flags.output_prefix,
      json_key=flags.json_keys,
      pack_to_seq_len=flags.pack_to_seq_len,
      overwrite=flags.overwrite,
      log_interval=flags.log_interval,
    )
    warnings.warn(
      "Only tokenizers that Hugging Face AutoTokenizer loads are supported;"
      f" loading {flags.tokenizer_name_or_path!r} with it.",
      UserWarning,
      stacklevel=1,
    )
    tokenizer = load_tokenizer(
      flags.tokenizer_name_or_path,
      use_fast=flags.tokenizer_use_fast,
      trust_remote_code=flags.trust_remote_code,
    )
    manifest = prepare_corpus(
      flags.dataset_name_or_path,
      output_prefix=flags.output_prefix,
      tokenizer=tokenizer,
      json_key=flags.json_keys,
      append_eod=flags.append_eod,
      pack_to_seq_len=flags.pack_to_seq_len,
      overwrite=flags.overwrite,
      log_interval=flags.log_interval,
    )
  except (OSError, ValueError) as error:
    print(
      f"offline_preparation: {type(error).__name__}: {error}", file=sys.stderr
    )
    return 1
  print(summary(prefix, manifest))
  return 0


def summary(prefix: str | os.PathLike[str], manifest: Manifest) -> str:
  """What was written, in a few lines for a person."""
  info = manifest.tokenizer
  lines = [
    f"wrote {os.fspath(prefix)}.bin and .idx",
    f"  documents  {manifest.documents:,}, in {manifest.sequences:,} sequences"
    f" ({manifest.empty_documents:,} empty ones read)",
    f"  tokens     {manifest.tokens:,} as {manifest.dtype}"
    f" ({manifest.bin_bytes:,} bytes)",
    f"  tokenizer  {info.name}, {info.vocab_size:,} ids, digest {info.digest}",
    f"  EOD        id {info.eod_id} after each document"
    if manifest.append_eod
    else "  EOD        none",
  ]
  if manifest.pack_to_seq_len is not None:
    lines.append(
      f"  packed     records of {manifest.pack_to_seq_len + 1} tokens,"
      f" {manifest.dropped_tokens:,} tokens of the tail dropped"
    )
  return "\n".join(lines)


def _boolean(text: str) -> bool:
  """Reads a flag's `true` or `false`."""
  values = {"true": True, "false": False}
  if text.lower() not in values:
    raise argparse.ArgumentTypeError(f"expected true or false, got {text!r}")
  return values[text.lower()]


def _parser() -> argparse.ArgumentParser:
  parser = argparse.ArgumentParser(
    prog="offline_preparation",
    # An abbreviated flag would change its meaning when another is added.
    allow_abbrev=False,
    formatter_class=argparse.RawDescriptionHelpFormatter,
    description=(
      "Tokenizes one JSON Lines file into PREFIX_text_document.bin/.idx, the\n"
      "pair that training reads, with a manifest beside it. Each line is an\n"
      'object like {"text": "A document."}. Nothing is left under the final\n'
      "names if the run fails or is killed."
    ),
    epilog=(
      "Documents of any length, for training on rows cut at run time:\n"
      "  %(prog)s --dataset-name-or-path corpus.jsonl \\\n"
      "    --output-prefix data/train --tokenizer-name-or-path gpt2\n\n"
      "Records of 4097 tokens, for training with seq_length 4096 and\n"
      "is_dataset_from_mr:\n"
      "  %(prog)s --dataset-name-or-path corpus.jsonl \\\n"
      "    --output-prefix data/train_4096 --tokenizer-name-or-path gpt2 \\\n"
      "    --pack-to-seq-len 4096\n\n"
      "Ids are those of the tokenizer without its own special tokens (no BOS,\n"
      "CLS or SEP around a document), and one EOD at the end. They are stored\n"
      "as uint16 if the vocabulary has fewer than 65500 ids, else as int32."
    ),
  )
  parser.add_argument(
    "--dataset-name-or-path",
    required=True,
    metavar="FILE",
    help="the JSON Lines file to read; it is never changed",
  )
  parser.add_argument(
    "--json-keys",
    default="text",
    metavar="KEY",
    help="the key that holds the text; one key (default: text)",
  )
  parser.add_argument(
    "--output-prefix",
    required=True,
    metavar="PREFIX",
    help="path and beginning of the name of what is written; missing folders"
    " are made",
  )
  parser.add_argument(
    "--tokenizer-name-or-path",
    required=True,
    metavar="TOKENIZER",
    help="a Hugging Face tokenizer: a folder with tokenizer.json, or a name on"
    " the hub; other kinds are not supported",
  )
  parser.add_argument(
    "--tokenizer-use-fast",
    type=_boolean,
    nargs="?",
    const=True,
    default=True,
    metavar="true|false",
    help="use the fast tokenizer where there are two (default: true)",
  )
  parser.add_argument(
    "--trust-remote-code",
    type=_boolean,
    nargs="?",
    const=True,
    default=False,
    metavar="true|false",
    help="let the tokenizer's repository run its own Python code here"
    " (default: false)",
  )
  parser.add_argument(
    "--append-eod",
    type=_boolean,
    nargs="?",
    const=True,
    default=True,
    metavar="true|false",
    help="end each non-empty document with the tokenizer's EOS, or its SEP if"
    " it has no EOS (default: true)",
  )
  parser.add_argument(
    "--pack-to-seq-len",
    type=int,
    metavar="N",
    help="lay the documents end to end and cut records of N + 1 tokens; the"
    " tail is dropped, never padded (default: keep documents whole)",
  )
  parser.add_argument(
    "--log-interval",
    type=int,
    default=1000,
    metavar="N",
    help="documents between progress lines, where stderr is no terminal; 0"
    " for none (default: 1000)",
  )
  parser.add_argument(
    "--overwrite",
    action="store_true",
    help="replace an output that is there (default: refuse)",
  )
  return parser


if __name__ == "__main__":
  sys.exit(main())
