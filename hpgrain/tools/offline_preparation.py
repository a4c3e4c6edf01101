r"""The command that turns raw text into a pair that training reads.

Command to run:

python -m hpgrain.tools.offline_preparation \
  --dataset-name-or-path corpus.jsonl \
  --output-prefix data/train \
  --tokenizer-name-or-path gpt2
"""

import argparse
import errno
import os
import signal
import sys
import warnings
from collections.abc import Callable, Sequence
from types import FrameType

from hpgrain.tokenizer import load_tokenizer, tokenizer_info
from hpgrain.tools.added_tokens import add_special_tokens as add_tokens
from hpgrain.tools.corpus import (
  check_free,
  check_request,
  prepare,
  prepare_corpus,
)
from hpgrain.tools.inputs import BadRecordError
from hpgrain.tools.options import Options, check_options
from hpgrain.tools.preparation_flags import (
  EPILOG,
  add_boolean,
  add_flow_flags,
  add_our_flags,
  add_output_flags,
  add_tokenizer_flags,
  flow_options,
  local_name,
  parse_flags,
)
from hpgrain.tools.summary import run_summary, summary
from hpgrain.tools.work_folder import RefusedError, Shard, WorkFolder

__all__ = [
  "describe_failure",
  "main",
  "parser",
  "prepare_corpus",
  "run",
  "summary",
]

# A disk, or a user's share of it, that has no more space.
_FULL = (errno.ENOSPC, errno.EDQUOT)


def main(argv: Sequence[str] | None = None) -> int:
  """Runs the command line; returns the exit code."""
  flags = parse_flags(parser(), argv)
  options = Options(
    path=local_name(flags.dataset_name_or_path),
    chat_template=flags.chat_template,
    split_sentences=flags.split_sentences,
    keep_newlines=flags.keep_newlines,
    lang=flags.lang,
    recursive=flags.recursive,
    **flow_options(flags),
  )
  return run(
    "offline_preparation",
    options,
    tokenizer=flags.tokenizer_name_or_path,
    use_fast=flags.tokenizer_use_fast,
    trust_remote_code=flags.trust_remote_code,
    add_special_tokens=flags.add_special_tokens or (),
  )


def run(
  command: str,
  options: Options,
  *,
  tokenizer: str,
  use_fast: bool,
  trust_remote_code: bool,
  add_special_tokens: Sequence[str] = (),
  fetch: Callable[[Options], Options] | None = None,
) -> int:
  """Prepares, and tells of it: a summary, or one line on stderr.

  Args:
    command: the name to say it under.
    options: what to prepare.
    tokenizer: its folder or name on the hub.
    use_fast: as for `load_tokenizer`.
    trust_remote_code: as for `load_tokenizer`.
    add_special_tokens: strings to make special tokens of.
    fetch: makes the input, and returns the options with its path; None where
      it is there already.

  Returns:
    The exit code: 0, 1 for what a message says, 130 where it was interrupted.
  """
  before = signal.signal(signal.SIGTERM, _interrupt)
  # A line for whoever runs a command, without a place in our code.
  format_before = warnings.formatwarning
  warnings.formatwarning = lambda message, category, *_, **__: (
    f"{command}: {category.__name__}: {message}\n"
  )
  try:
    # Before the tokenizer, which takes seconds or a download to load.
    if fetch is None:
      check_request(options)
    else:
      check_options(options)
      check_free(options)
    warnings.warn(
      "Only tokenizers that Hugging Face AutoTokenizer loads are supported;"
      f" loading {tokenizer!r} with it.",
      UserWarning,
      stacklevel=2,
    )
    loaded = load_tokenizer(
      tokenizer, use_fast=use_fast, trust_remote_code=trust_remote_code
    )
    if add_special_tokens:
      # Written before the corpus, which no other tokenizer can read.
      loaded = add_tokens(loaded, add_special_tokens, options)
    if fetch is not None:
      # Before the input, which may take hours to make.
      tokenizer_info(loaded, require_eod=options.append_eod)
      options = fetch(options)
    report = prepare(options, tokenizer=loaded)
    if add_special_tokens:
      folder = loaded.name_or_path
      print(f"the tokenizer with the added tokens is in {folder}")
    print(run_summary(options, report), flush=True)
  except BrokenPipeError:
    # Whoever read what is printed has gone; the work is done.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
  except (OSError, ValueError) as error:
    print(f"{command}: {describe_failure(error)}", file=sys.stderr)
    _say_what_is_kept(options, error)
    return 1
  except KeyboardInterrupt:
    print(f"{command}: interrupted", file=sys.stderr)
    _say_what_is_kept(options, None)
    return 130
  finally:
    signal.signal(signal.SIGTERM, before)
    warnings.formatwarning = format_before
  return 0


def describe_failure(error: Exception) -> str:
  """An error as a line for a person, with what to do where we know it."""
  said = f"{type(error).__name__}: {error}"
  if isinstance(error, OSError) and error.errno in _FULL:
    said += (
      ". The disk is full: free space where the output and the unfinished work"
      " are written, then run the same command again. It goes on where this"
      " stopped."
    )
  if isinstance(error, OSError) and error.errno == errno.EFBIG:
    said += (
      ". A file would be larger than this process may write (ulimit -f) or than"
      " the file system holds. Raise the limit, or write elsewhere, then run"
      " the same command again."
    )
  return said


def parser() -> argparse.ArgumentParser:
  """The command's flags."""
  made = argparse.ArgumentParser(
    prog="offline_preparation",
    # An abbreviated flag would change its meaning when another is added.
    allow_abbrev=False,
    formatter_class=argparse.RawDescriptionHelpFormatter,
    description=(
      "Tokenizes raw text into PREFIX_text_document.bin/.idx, the pair that\n"
      "training reads, with a manifest beside it. JSON Lines have an object\n"
      'like {"text": "A document."} on each line. Nothing is left under the\n'
      "final names if the run fails or is killed, and the same command goes\n"
      "on where it stopped."
    ),
    epilog=(
      "Documents of any length, for training on rows cut at run time:\n"
      "  %(prog)s --dataset-name-or-path corpus.jsonl \\\n"
      "    --output-prefix data/train --tokenizer-name-or-path gpt2\n\n"
      "Records of 4097 tokens, for training with seq_length 4096 and\n"
      "is_dataset_from_mr:\n"
      "  %(prog)s --dataset-name-or-path 'corpus/*.jsonl.gz' \\\n"
      "    --output-prefix data/train_4096 --tokenizer-name-or-path gpt2 \\\n"
      "    --pack-to-seq-len 4096\n\n"
      "Ids are those of the tokenizer without its own special tokens (no BOS,\n"
      "CLS or SEP around a document), and one EOD at the end. They are stored\n"
      "as uint16 if the vocabulary has fewer than 65500 ids, else as int32.\n\n"
      f"{EPILOG}"
    ),
  )
  made.add_argument(
    "--dataset-name-or-path",
    required=True,
    metavar="PATH",
    help="a file, a folder (not its folders), or a pattern in quotes; files"
    " are taken in the order of their paths, and never changed",
  )
  add_output_flags(made)
  add_tokenizer_flags(made, name="--tokenizer-name-or-path")
  made.add_argument(
    "--chat-template",
    metavar="TEMPLATE",
    help="the records hold conversations, lists of messages, which this Jinja"
    " template renders: itself, the path of a file, or 'tokenizer' for the"
    " tokenizer's own (default: they hold texts)",
  )
  made.add_argument(
    "--add-special-tokens",
    nargs="+",
    metavar="TOKEN",
    help="make these strings special tokens; the tokenizer that has them is"
    " written to PREFIX_tokenizer, and training needs that one",
  )
  add_boolean_switch(made, "--split-sentences", "make each sentence a sequence")
  add_boolean_switch(made, "--keep-newlines", "keep line ends of sentences")
  made.add_argument(
    "--lang",
    default="english",
    help="language of the sentences, as NLTK names it (default: english)",
  )
  add_flow_flags(made)
  add_our_flags(made)
  made.add_argument(
    "--recursive",
    action="store_true",
    help="take the files of folders in folders, and ** in patterns",
  )
  return made


def add_boolean_switch(
  made: argparse.ArgumentParser, name: str, help: str
) -> None:
  """Adds a flag that stands alone for true, or takes true or false."""
  add_boolean(made, name, default=False, help=help)


def _say_what_is_kept(options: Options, error: Exception | None) -> None:
  """Says on stderr what unfinished work there is, if the next run takes it."""
  if isinstance(error, BlockingIOError | FileExistsError | RefusedError):
    # The command that was refused has no part in it.
    return
  try:
    folder = options.work_folder()
    count = len(WorkFolder(folder, Shard()).finished())
  except (OSError, ValueError):
    # Nothing can lie there; the error that brought us here says why.
    return
  if not count:
    return
  how = "the same command goes on with it"
  if isinstance(error, BadRecordError):
    how = "with --on-bad-record=skip the command goes on with it"
  print(
    f"Finished work is kept in {folder} ({count} units): {how}.",
    file=sys.stderr,
  )


def _interrupt(number: int, frame: FrameType | None) -> None:
  raise KeyboardInterrupt


if __name__ == "__main__":
  sys.exit(main())
