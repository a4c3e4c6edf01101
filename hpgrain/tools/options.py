"""What a preparation is asked for, and the checks that need no file."""

import dataclasses
import hashlib
import os
from pathlib import PurePath

from hpgrain.manifest import DatasetSource, corpus_files, manifest_path
from hpgrain.sources.array_record_format import array_record_path
from hpgrain.tools import storage
from hpgrain.tools.encoders import BACKENDS, SPECIAL_TOKENS_IN_TEXT
from hpgrain.tools.inputs import UNIT_BYTES, InputFile

ON_BAD_RECORD = ("error", "skip")
PACK_TAIL = ("drop", "carry")
FORMATS = ("indexed", "arrayrecord")
RUNNERS = ("local", "beam", "ray")
# Bytes of keys in a file's name; the prefix and more are in it, too.
_LONG_NAME = 100


@dataclasses.dataclass(frozen=True)
class Options:
  """A preparation, as the command line gives it.

  Attributes:
    path: a file, a folder or a pattern, or a URL of such; the files are only
      read.
    output_prefix: path or URL and beginning of the name of what is written;
      missing folders are made.
    json_keys: the keys that hold the texts, each of which gives a pair
      `{output_prefix}_{key}_document`.
    append_eod: end each non-empty document with EOS (SEP if it has none).
    workers: the most processes to use; a multiple of `partitions`.
    partitions: P. Records are dealt to them in turn, and the pair holds one
      after the other.
    keep_sequential_samples: make partitions blocks of consecutive records.
    pack_to_seq_len: cut a partition's documents, laid end to end, into records
      of one token more than this; None keeps documents whole.
    pack_tail: "drop" the tail of each partition, or "carry" it to the next.
    keep_partition_files: write each partition's records as JSON Lines too, to
      `{output_prefix}_partition_{p}.jsonl`.
    shuffle: seed of an order to put the records in first; None keeps theirs.
    format: "indexed" writes `.bin/.idx` pairs, "arrayrecord" writes each key's
      documents to `{output_prefix}_{key}_document.array_record`.
    on_bad_record: "error", or "skip" the records that cannot be used.
    max_bad_records: more of them than this are an error all the same.
    tokenizer_backend: "auto", "huggingface" or "gigatoken".
    special_tokens_in_text: a special token that a text spells out becomes its
      id ("as_is"), is encoded like any text ("plain"), or makes the record a
      bad one ("error").
    chat_template: the records hold conversations, lists of messages, which
      this renders: a Jinja template, the path of one, or "tokenizer" for the
      tokenizer's own. None: they hold texts.
    split_sentences: make each sentence a sequence of its document.
    keep_newlines: keep line ends between sentences.
    lang: language of the sentences.
    recursive: take files of folders in folders.
    overwrite: replace an output that is there, and start over where another
      request left unfinished work. The old pair stays until the new is whole.
    work_dir: folder for unfinished work; None takes the output's.
    scratch_dir: local folder for what is on its way to or from an object
      store; None takes the system's folder for temporary files.
    runner: what does the units: "local" processes, an Apache "beam" pipeline,
      or "ray" tasks.
    beam_options: pipeline options, such as "--runner=DataflowRunner"; none run
      it on this machine.
    ray_address: of a cluster; None takes that of RAY_ADDRESS, or starts one on
      this machine.
    shard_index: the part of the units to do here.
    num_shards: parts; with several, `merge_only` comes after the last.
    merge_only: make the pairs of the units that shards have done; of all of
      them, whatever `shard_index` is.
    log_interval: documents between progress lines on stderr (0: none); on a
      terminal a bar is shown instead.
    unit_bytes: about how much of the input a unit of work has.
    dataset: where the input comes from, for the manifest; None where it is
      nobody else's.
  """

  path: str | os.PathLike[str]
  output_prefix: str | os.PathLike[str]
  json_keys: tuple[str, ...] = ("text",)
  append_eod: bool = True
  workers: int = 1
  partitions: int = 1
  keep_sequential_samples: bool = False
  pack_to_seq_len: int | None = None
  pack_tail: str = "drop"
  keep_partition_files: bool = False
  shuffle: int | None = None
  format: str = "indexed"
  on_bad_record: str = "error"
  max_bad_records: int = 1000
  tokenizer_backend: str = "auto"
  special_tokens_in_text: str = "as_is"
  chat_template: str | None = None
  split_sentences: bool = False
  keep_newlines: bool = False
  lang: str = "english"
  recursive: bool = False
  overwrite: bool = False
  work_dir: str | os.PathLike[str] | None = None
  scratch_dir: str | os.PathLike[str] | None = None
  runner: str = "local"
  beam_options: tuple[str, ...] = ()
  ray_address: str | None = None
  shard_index: int = 0
  num_shards: int = 1
  merge_only: bool = False
  log_interval: int = 1000
  unit_bytes: int = UNIT_BYTES
  dataset: DatasetSource | None = None

  def prefix(self, key: str) -> PurePath:
    """The prefix of the pair of a key."""
    return storage.as_path(f"{os.fspath(self.output_prefix)}_{key}_document")

  def corpus(self, key: str) -> PurePath:
    """The name of the corpus of a key: a prefix, or an ArrayRecord's path."""
    prefix = self.prefix(key)
    if self.format == "indexed":
      return prefix
    return storage.as_path(array_record_path(prefix))

  def outputs(self) -> list[PurePath]:
    """All files that are written under final names."""
    return [
      path
      for name in map(self.corpus, self.json_keys)
      for path in (*corpus_files(name).values(), manifest_path(name))
    ] + self.partition_files()

  def partition_files(self) -> list[PurePath]:
    """The JSON Lines files of the partitions; none unless asked for."""
    if not self.keep_partition_files:
      return []
    prefix = os.fspath(self.output_prefix)
    return [
      storage.as_path(f"{prefix}_partition_{p}.jsonl")
      for p in range(self.partitions)
    ]

  def work_folder(self) -> PurePath:
    """The folder of unfinished work."""
    keys = "_".join(self.json_keys)
    if len(keys.encode()) > _LONG_NAME:
      # A file's name has 255 bytes at most.
      digest = hashlib.blake2b(keys.encode(), digest_size=8).hexdigest()
      keys = f"{len(self.json_keys)}_keys_{digest}"
    prefix = self.prefix(keys)
    folder = prefix.parent
    if self.work_dir is not None:
      folder = storage.as_path(self.work_dir)
    return folder / f"{prefix.name}.parts"

  def is_shard(self) -> bool:
    """Whether only a part of the units is done, and no pair is made."""
    return self.num_shards > 1 and not self.merge_only

  def needs_scratch(self) -> bool:
    """Whether something is written to an object store."""
    return storage.is_url(self.output_prefix) or storage.is_url(
      self.work_folder()
    )


def check_options(options: Options) -> None:
  """Checks what can be checked before a file is looked at.

  Raises:
    ValueError: an option is not allowed, or two contradict each other.
  """
  for name in ("workers", "partitions", "num_shards", "unit_bytes"):
    value = getattr(options, name)
    if value < 1:
      raise ValueError(f"{name} must be a positive integer, got {value}.")
  if options.workers % options.partitions:
    raise ValueError(
      f"workers must be a multiple of partitions, got workers"
      f" {options.workers} and partitions {options.partitions}. Take"
      f" {options.partitions} workers, or any multiple."
    )
  for name in ("log_interval", "max_bad_records", "shard_index"):
    value = getattr(options, name)
    if value < 0:
      raise ValueError(f"{name} must be 0 or positive, got {value}.")
  if options.shard_index >= options.num_shards:
    raise ValueError(
      f"shard_index counts from 0 to num_shards - 1, got {options.shard_index}"
      f" of {options.num_shards}."
    )
  size = options.pack_to_seq_len
  if size is not None and not 0 < size < 2**31 - 1:
    raise ValueError(
      f"pack_to_seq_len must be positive (and below {2**31 - 1}), got {size}."
      " Give the seq_length that training will use, or leave it out to keep"
      " documents whole."
    )
  for name, allowed in (
    ("on_bad_record", ON_BAD_RECORD),
    ("pack_tail", PACK_TAIL),
    ("tokenizer_backend", BACKENDS),
    ("special_tokens_in_text", SPECIAL_TOKENS_IN_TEXT),
    ("runner", RUNNERS),
    ("format", FORMATS),
  ):
    if getattr(options, name) not in allowed:
      raise ValueError(
        f"{name} must be one of {', '.join(allowed)}, got"
        f" {getattr(options, name)!r}."
      )
  _check_names(options)
  _check_together(options)


def check_outputs(options: Options, files: list[InputFile]) -> None:
  """Refuses to write over an input.

  Raises:
    ValueError: an output is one of the inputs.
  """
  inputs = {storage.identity(file.path): file.path for file in files}
  for path in existing(options):
    written_over = inputs.get(storage.identity(path))
    if written_over is not None:
      raise ValueError(
        f"The output {path} would overwrite the input {written_over}. Give"
        " another output prefix."
      )


def refuse_existing(options: Options, key: str | None = None) -> None:
  """Refuses to write over an output.

  Args:
    options: what is written.
    key: of the corpus to look at alone; None looks at all outputs.

  Raises:
    FileExistsError: there is one.
  """
  present = existing(options)
  if key is not None:
    corpus = options.corpus(key)
    own = {*corpus_files(corpus).values(), manifest_path(corpus)}
    present = [path for path in present if path in own]
  if not present:
    return
  shard = ""
  if options.is_shard():
    shard = " If the shards were merged meanwhile, nothing is left to do here."
  raise FileExistsError(
    f"The output exists: {', '.join(map(str, present))}. Give another output"
    " prefix, remove these files, or allow it with --overwrite"
    f" (overwrite=True).{shard}"
  )


def without_outputs(
  options: Options, files: list[InputFile]
) -> list[InputFile]:
  """Leaves out what the same command wrote into the folder that it reads.

  A file that is named by itself is kept, to be refused.
  """
  if len(files) < 2:
    return files
  own = {storage.identity(path) for path in existing(options)}
  if not own:
    return files
  return [file for file in files if storage.identity(file.path) not in own]


def existing(options: Options) -> list[PurePath]:
  """The outputs that are there."""
  return [path for path in options.outputs() if storage.exists(path)]


def _check_names(options: Options) -> None:
  keys = options.json_keys
  if isinstance(keys, str) or not keys or len(set(keys)) != len(keys):
    raise ValueError(
      f"json_keys must be one or more different keys, got {keys!r}."
    )
  for key in keys:
    if not key or "/" in key or "\0" in key or not _is_text(key):
      raise ValueError(
        f"The JSON key {key!r} cannot be part of the output's name. Give a key"
        " that is not empty, is UTF-8 text and has no '/'."
      )
  name = os.fspath(options.output_prefix)
  if not name or name.endswith("/"):
    raise ValueError(
      f"output_prefix must end with the beginning of a file name, got"
      f" {name!r}. 'data/train' writes data/train_{keys[0]}_document.bin."
    )
  if options.scratch_dir is not None and storage.is_url(options.scratch_dir):
    raise ValueError(
      f"scratch_dir must be a local folder, got {options.scratch_dir}."
    )
  # Not every URL can be written to.
  options.outputs()
  options.work_folder()


def _is_text(key: str) -> bool:
  try:
    key.encode()
  except UnicodeEncodeError:
    return False
  return True


def _check_together(options: Options) -> None:
  for name, runner, flag in (
    ("beam_options", "beam", "what follows -- on the command line"),
    ("ray_address", "ray", "--ray-address"),
  ):
    if getattr(options, name) and options.runner != runner:
      raise ValueError(
        f"{name} ({flag}) is for --runner={runner}, got --runner"
        f"={options.runner}."
      )
  if options.chat_template is not None:
    if options.special_tokens_in_text != "as_is":
      raise ValueError(
        "chat_template does not go with special_tokens_in_text="
        f"{options.special_tokens_in_text}: what it writes between messages"
        " are special tokens. Leave one of them out."
      )
  if options.keep_partition_files:
    for name, value in (
      ("shuffle", options.shuffle is not None),
      ("chat_template", options.chat_template is not None),
      (
        "special_tokens_in_text=error",
        options.special_tokens_in_text == "error",
      ),
    ):
      if value:
        raise ValueError(
          f"keep_partition_files does not go with {name}: the files are made"
          " of the input's records in their order. Leave one of them out."
        )
