r"""The command that turns a Hugging Face dataset into a pair training reads.

Command to run:

python -m hpgrain.tools.huggingface_offline \
  --dataset Salesforce/wikitext \
  --dataset-subset wikitext-103-raw-v1 \
  --output-prefix data/train \
  --tokenizer gpt2

  revision -> commit -> rows in the cache -> JSON Lines -> as the local command
"""

import argparse
import contextlib
import dataclasses
import logging
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from hpgrain.tools.forked_children import ended_with_us
from hpgrain.tools.hub_request import (
  READERS,
  DatasetRequest,
  check_dataset_request,
)
from hpgrain.tools.normalized_jsonl import fetch_jsonl
from hpgrain.tools.offline_preparation import run
from hpgrain.tools.options import Options
from hpgrain.tools.preparation_flags import (
  add_flow_flags,
  add_our_flags,
  add_output_flags,
  add_tokenizer_flags,
  flow_options,
  local_name,
  parse_flags,
)

# Beside the output, for all outputs of a folder.
DOWNLOAD_FOLDER = "huggingface_jsonl"


def main(argv: Sequence[str] | None = None) -> int:
  """Runs the command line; returns the exit code."""
  flags = parse_flags(parser(), argv)
  request = DatasetRequest(
    name=local_name(flags.dataset).removeprefix("hf://datasets/"),
    keys=tuple(flags.json_keys),
    subset=flags.dataset_subset,
    split=flags.dataset_split,
    revision=flags.revision,
    cache_dir=flags.cache_dir and local_name(flags.cache_dir),
    data_dir=flags.data_dir and local_name(flags.data_dir),
    data_files=flags.data_files and tuple(map(local_name, flags.data_files)),
    num_proc=flags.num_proc,
  )
  options = Options(path="", **flow_options(flags))

  def fetch(asked: Options) -> Options:
    bars = bool(asked.log_interval) and sys.stderr.isatty()
    with _quiet(bars=bars), ended_with_us():
      made = fetch_jsonl(
        request,
        download_folder(flags.download_dir, asked.output_prefix),
        log_interval=asked.log_interval,
      )
    said = "reusing" if made.reused else "wrote"
    print(f"{said} {made.path} ({made.rows:,} rows)", file=sys.stderr)
    return dataclasses.replace(asked, path=made.path, dataset=made.source)

  try:
    check_dataset_request(request)
    download_folder(flags.download_dir, options.output_prefix)
  except (OSError, ValueError) as error:
    print(
      f"huggingface_offline: {type(error).__name__}: {error}", file=sys.stderr
    )
    return 1
  return run(
    "huggingface_offline",
    options,
    tokenizer=flags.tokenizer,
    use_fast=flags.tokenizer_use_fast,
    trust_remote_code=flags.trust_remote_code,
    fetch=fetch,
  )


def download_folder(
  given: str | None, output_prefix: str | os.PathLike[str]
) -> Path:
  """Where the JSON Lines file goes: as given, or a folder beside the output.

  Raises:
    ValueError: that is or would be no local folder.
  """
  prefix = os.fspath(output_prefix)
  if given is None and "://" in prefix:
    raise ValueError(
      f"The output {prefix} is on an object store, and the JSON Lines file that"
      " the dataset is downloaded to has to be local. Give a folder with"
      " --download-dir."
    )
  if given is not None and "://" in given:
    raise ValueError(f"--download-dir must be a local folder, got {given!r}.")
  folder = Path(prefix).parent / DOWNLOAD_FOLDER
  if given is not None:
    folder = Path(local_name(given))
  if folder.exists() and not folder.is_dir():
    raise ValueError(
      f"{folder} is no folder, and the JSON Lines file that the dataset is"
      " downloaded to would go there. Give a folder with --download-dir."
    )
  return folder


def parser() -> argparse.ArgumentParser:
  """The command's flags."""
  made = argparse.ArgumentParser(
    prog="huggingface_offline",
    # An abbreviated flag would change its meaning when another is added.
    allow_abbrev=False,
    formatter_class=argparse.RawDescriptionHelpFormatter,
    description=(
      "Downloads a split of a Hugging Face dataset, writes its texts as JSON\n"
      "Lines to --download-dir, and tokenizes those into\n"
      "PREFIX_text_document.bin/.idx, the pair that training reads, with a\n"
      "manifest beside it that names the dataset's commit. What is downloaded\n"
      "or written once is used again, and a run that was killed goes on where\n"
      "it stopped."
    ),
    epilog=(
      "  %(prog)s --dataset Salesforce/wikitext \\\n"
      "    --dataset-subset wikitext-103-raw-v1 --output-prefix data/train \\\n"
      "    --tokenizer gpt2 --workers 8 --partitions 2 \\\n"
      "    --keep-sequential-samples --pack-to-seq-len 4096\n\n"
      "HF_HOME, HF_ENDPOINT, HF_TOKEN and HF_HUB_OFFLINE are respected.\n"
      "Without the hub, the commit that is asked for is taken from the cache,\n"
      "or it is an error."
    ),
  )
  made.add_argument(
    "--dataset",
    required=True,
    metavar="NAME",
    help="a dataset's name on the hub; or a local folder; or one of"
    f" {', '.join(READERS)}, with --data-files",
  )
  made.add_argument(
    "--dataset-subset",
    metavar="NAME",
    help="which of its subsets (configurations) (default: the only one, or the"
    " dataset's own default)",
  )
  made.add_argument(
    "--dataset-split",
    default="train",
    metavar="SPLIT",
    help="which split; or a part or a sum, as in train[:10%%]+test (default:"
    " train)",
  )
  made.add_argument(
    "--revision",
    metavar="REVISION",
    help="branch, tag or commit of the dataset (default: its default branch)",
  )
  made.add_argument(
    "--cache-dir",
    metavar="DIR",
    help="where the datasets library keeps what it made of downloads (default:"
    " its own, in HF_HOME)",
  )
  made.add_argument(
    "--data-dir",
    metavar="DIR",
    help="take the files of this folder in the dataset alone",
  )
  made.add_argument(
    "--data-files",
    nargs="+",
    metavar="FILE",
    help="take these files or patterns alone, as the split train",
  )
  made.add_argument(
    "--num-proc",
    type=int,
    metavar="N",
    help="processes that download and make the rows (default: this one)",
  )
  add_output_flags(made)
  made.add_argument(
    "--download-dir",
    metavar="DIR",
    help="where the JSON Lines file is written and kept (default:"
    f" {DOWNLOAD_FOLDER} in the folder of the output)",
  )
  add_tokenizer_flags(made, name="--tokenizer")
  add_flow_flags(made)
  add_our_flags(made)
  return made


@contextlib.contextmanager
def _quiet(*, bars: bool) -> Iterator[None]:
  """Keeps the libraries from saying what is said here, or drawing bars."""
  import datasets
  import huggingface_hub.utils as hub

  if not bars:
    datasets.disable_progress_bars()
    hub.disable_progress_bars()
  # Its records may quote the data, and what fails is raised as well.
  before = datasets.logging.get_verbosity()
  datasets.logging.set_verbosity(logging.CRITICAL)
  try:
    yield
  finally:
    datasets.logging.set_verbosity(before)


if __name__ == "__main__":
  sys.exit(main())
