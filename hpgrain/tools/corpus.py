r"""Raw text and a tokenizer in, `.bin/.idx` pairs and their manifests out.

  {"text": "One."}           tokenize      [5 7 | eod]
  {"text": "Two, three."}  ------------>   [6 9 8 | eod]   .bin and .idx
  {"text": ""}              append EOD     []

  inputs -> units -> (any engine) -> unit files -> merge -> pairs, manifests

The units are cut by the inputs alone, and the merge reads them in order, so
the same input gives the same bytes whatever does the work.
"""

import contextlib
import dataclasses
import os
import pickle
import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpgrain.manifest import Manifest
from hpgrain.tokenizer import TokenizerInfo, tokenizer_info
from hpgrain.tools import storage
from hpgrain.tools.chat import read_template
from hpgrain.tools.encoder_spec import EncoderSpec
from hpgrain.tools.encoders import choose_backend
from hpgrain.tools.inputs import InputFile, find_inputs, units
from hpgrain.tools.options import (
  Options,
  check_options,
  check_outputs,
  existing,
  refuse_existing,
  without_outputs,
)
from hpgrain.tools.progress import Progress
from hpgrain.tools.publish import publish, published
from hpgrain.tools.request import (
  Chat,
  Layout,
  Sentences,
  UnitRequest,
  describe_units,
)
from hpgrain.tools.runners import check_runner, run_units
from hpgrain.tools.sample import sample_texts
from hpgrain.tools.scratch import scratch_folder
from hpgrain.tools.sentences import sentence_splitter
from hpgrain.tools.shards import describe_missing
from hpgrain.tools.unit_batches import good_records
from hpgrain.tools.work_folder import Shard, WorkFolder, opened

if TYPE_CHECKING:
  from transformers import PreTrainedTokenizerBase


@dataclasses.dataclass(frozen=True)
class Report:
  """What a run did.

  Attributes:
    manifests: of each pair that was made, by its key; none where only a shard
      was done.
    num_units: units of the input.
    num_done: units this run did.
    num_reused: units that were there already.
    num_inputs: files of the input.
    input_bytes: their sizes together.
    done_bytes: of those, what the units this run did have.
    seconds: that the run took, the tokenizer's loading left out.
  """

  manifests: dict[str, Manifest]
  num_units: int
  num_done: int
  num_reused: int
  num_inputs: int = 0
  input_bytes: int = 0
  done_bytes: int = 0
  seconds: float = 0.0


def prepare_corpus(
  path: str | os.PathLike[str],
  *,
  output_prefix: str | os.PathLike[str],
  tokenizer: "PreTrainedTokenizerBase",
  json_key: str = "text",
  **options: Any,
) -> Manifest:
  """Tokenizes raw text into `{output_prefix}_{json_key}_document`.

  The pair appears under its final name when it is whole, and its manifest
  after it; a run that fails or is killed leaves neither, and the same call
  goes on where it stopped. The same input gives the same bytes however many
  processes tokenize.

  Args:
    path: a file, a folder or a pattern; the files are only read.
    output_prefix: path and beginning of the name of what is written; missing
      folders are made.
    tokenizer: what `load_tokenizer` returned. Its own special tokens are not
      added around documents (`add_special_tokens=False`).
    json_key: the key that holds the text.
    **options: fields of `Options`, such as append_eod, pack_to_seq_len,
      workers, overwrite.

  Returns:
    The manifest that was written, with all counts.

  Raises:
    BlockingIOError: another run writes this output.
    FileExistsError: the output is there and `overwrite` is off.
    FileNotFoundError: the input is not there.
    ValueError: a bad argument, a record that cannot be read, unfinished work
      of another request, or a tokenizer without EOS and SEP while `append_eod`
      is on.
  """
  request = Options(path, output_prefix, json_keys=(json_key,), **options)
  if request.is_shard():
    raise ValueError(
      "prepare_corpus returns the pair's manifest, and a shard makes none."
      " Take hpgrain.tools.corpus.prepare for shards."
    )
  return prepare(request, tokenizer=tokenizer).manifests[json_key]


def prepare(
  options: Options, *, tokenizer: "PreTrainedTokenizerBase"
) -> Report:
  """Does what `prepare_corpus` does, for several keys, or a shard of it.

  Raises:
    As `prepare_corpus`.
  """
  start = time.monotonic()
  files = check_request(options)
  if options.pack_to_seq_len is not None and not options.append_eod:
    warnings.warn(
      "Packing without an EOD: nothing will mark where one document ends and"
      " the next begins, so attention and labels run across them. Turn"
      " append_eod on unless that is meant.",
      UserWarning,
      stacklevel=2,
    )
  info = tokenizer_info(tokenizer, require_eod=options.append_eod)
  run = _Run(options, files, info, tokenizer)
  shard = Shard()
  if options.is_shard():
    shard = Shard(options.shard_index, options.num_shards)
  for path in (options.work_folder(), options.prefix("")):
    storage.make_folder(path.parent)
  with contextlib.ExitStack() as stack:
    scratch = None
    if options.needs_scratch():
      scratch = stack.enter_context(scratch_folder(options.scratch_dir))
    folder = stack.enter_context(
      opened(
        options.work_folder(),
        run.description(),
        shard=shard,
        # What shards did is not thrown away by whoever gathers it.
        restart=options.overwrite and not options.merge_only,
        scratch=scratch,
      )
    )
    try:
      report = run.work(folder)
    except BaseException:
      folder.remove_if_useless()
      raise
  return dataclasses.replace(
    report,
    num_inputs=len(files),
    input_bytes=sum(file.size for file in files),
    seconds=time.monotonic() - start,
  )


def check_request(options: Options) -> list[InputFile]:
  """Checks what can be checked before a tokenizer is loaded.

  Returns:
    The input files.

  Raises:
    As `prepare_corpus`.
  """
  check_options(options)
  check_runner(options)
  files = find_inputs(options.path, recursive=options.recursive)
  files = without_outputs(options, files)
  check_outputs(options, files)
  check_free(options)
  return files


def check_free(options: Options) -> None:
  """Refuses to replace outputs, other than those of a run that was killed.

  Raises:
    FileExistsError: there is one.
  """
  folder = options.work_folder()
  with contextlib.suppress(OSError):
    # Empty: the last that was left to do when a run was killed.
    storage.remove_folder(folder)
  # What an earlier run of this request published may be replaced.
  begun = WorkFolder(folder, Shard()).done() is not None
  if not options.overwrite and not begun:
    refuse_existing(options)


class _Run:
  """A preparation whose inputs and tokenizer are known."""

  def __init__(
    self,
    options: Options,
    files: list[InputFile],
    info: TokenizerInfo,
    tokenizer: "PreTrainedTokenizerBase",
  ) -> None:
    self._options = options
    self._tokenizer = tokenizer
    self._files = files
    self._info = info
    self._units = units(files, unit_bytes=options.unit_bytes)
    sentences = None
    if options.split_sentences:
      sentences = Sentences(options.lang, options.keep_newlines)
      # Whether it is there is better known now.
      sentence_splitter(sentences)
    chat = self._chat()
    self._request = UnitRequest(
      keys=tuple(options.json_keys),
      encoder=self._choose(chat),
      sentences=sentences,
      chat=chat,
      refuse_special_tokens=options.special_tokens_in_text == "error",
      skip_bad_records=options.on_bad_record == "skip",
      max_bad_records=options.max_bad_records,
    )
    self._layout = Layout(
      partitions=options.partitions,
      keep_sequential_samples=options.keep_sequential_samples,
      pack_to_seq_len=options.pack_to_seq_len,
      carry_tails=options.pack_tail == "carry",
      shuffle_seed=options.shuffle,
    )

  def description(self) -> dict[str, Any]:
    """JSON of all that decides the units' content."""
    inputs = [
      {
        "path": f.path if "://" in f.path else str(Path(f.path).resolve()),
        "bytes": f.size,
        "version": f.version,
      }
      for f in self._files
    ]
    description = describe_units(self._request, self._info, inputs)
    return description | {"unit_bytes": self._options.unit_bytes}

  def work(self, folder: WorkFolder) -> Report:
    """Does the units that are missing, then makes the pairs."""
    layout = dataclasses.asdict(self._layout)
    wanted = {
      "request": self.description(),
      "layout": layout,
      "format": self._options.format,
      "partition_files": self._options.keep_partition_files,
    }
    done = folder.done() or {}
    same = {name: done.get(name) for name in wanted} == wanted
    if same and done["published"]:
      # Killed as it removed the folder.
      manifests = published(self._options)
      folder.remove()
      return Report(manifests, len(self._units), 0, len(self._units))
    if not same and not self._options.overwrite:
      refuse_existing(self._options)
    num_done, num_reused, done_bytes = self._do_units(folder)
    report = Report(
      {}, len(self._units), num_done, num_reused, done_bytes=done_bytes
    )
    if self._options.is_shard():
      return report
    paths = self._fetch_units(folder)
    folder.mark_done(
      {**wanted, "published": False}, overwrite=self._options.overwrite
    )
    manifests = publish(
      self._options,
      self._request,
      self._layout,
      info=self._info,
      files=self._files,
      units=self._units,
      paths=paths,
      scratch=folder.scratch,
      # What a killed run of the same request published is made again.
      may_replace=self._options.overwrite or bool(done),
    )
    folder.mark_done({**wanted, "published": True})
    folder.remove()
    return dataclasses.replace(report, manifests=manifests)

  def _fetch_units(self, folder: WorkFolder) -> list[Path]:
    """Local files of all units.

    Raises:
      FileExistsError: another run has made the output and removed them; on an
        object store nothing keeps two runs apart.
      FileNotFoundError: some are gone for another reason.
    """
    try:
      return folder.fetch_units(len(self._units))
    except FileNotFoundError:
      present = existing(self._options)
      if not present:
        raise
      folder.remove_units()
      raise FileExistsError(
        f"Another run of the same output has ended meanwhile, and"
        f" {', '.join(map(str, present))} are there. There is nothing left to"
        " do."
      ) from None

  def _choose(self, chat: Chat | None) -> EncoderSpec:
    options = self._options
    return choose_backend(
      self._tokenizer,
      sample=sample_texts(
        self._units,
        lambda unit, on_bad: good_records(
          unit, options.json_keys, chat=chat, on_bad=on_bad
        ),
      ),
      vocab_size=self._info.vocab_size,
      backend=options.tokenizer_backend,
      special_tokens_in_text=options.special_tokens_in_text,
      add_eod=self._info.eod_id if options.append_eod else None,
    )

  def _chat(self) -> Chat | None:
    if self._options.chat_template is None:
      return None
    template = read_template(self._options.chat_template, self._tokenizer)
    return Chat(template, pickle.dumps(self._tokenizer))

  def _do_units(self, folder: WorkFolder) -> tuple[int, int, int]:
    """Returns how many units were done, how many were there, bytes done."""
    options = self._options
    mine = [
      (number, unit)
      for number, unit in enumerate(self._units)
      if not options.is_shard()
      or number % options.num_shards == options.shard_index
    ]
    finished = folder.finished()
    todo = [(number, unit) for number, unit in mine if number not in finished]
    if options.merge_only and todo:
      raise ValueError(
        describe_missing(
          [number for number, _ in todo],
          len(mine),
          folder=folder,
          num_shards=options.num_shards,
        )
      )
    bad = 0

    def count(_: int, summary: dict[str, Any]) -> None:
      nonlocal bad
      bad += summary["bad_records"]
      if bad > options.max_bad_records:
        raise ValueError(
          f"{bad} bad records were found, which is more than"
          f" --max-bad-records={options.max_bad_records} allows."
        )

    total = sum(unit.num_bytes for _, unit in mine)
    left = sum(unit.num_bytes for _, unit in todo)
    with Progress(
      total, options.log_interval, done_bytes=total - left
    ) as progress:
      run_units(
        todo,
        self._request,
        options=options,
        folder=folder,
        report=progress.update,
        finished=count,
        open_encoder=lambda: self._request.encoder.open(self._tokenizer),
      )
    return len(todo), len(mine) - len(todo), left
