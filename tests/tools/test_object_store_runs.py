"""Whole preparations from and to an object store, which is on this machine."""

import dataclasses
import json
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from hpgrain import object_store
from hpgrain.manifest import read_manifest
from hpgrain.object_store import list_files, put_bytes, put_file, read_bytes
from hpgrain.tools import corpus
from hpgrain.tools.corpus import prepare, prepare_corpus
from hpgrain.tools.offline_preparation import main
from hpgrain.tools.options import Options

TEXTS = ["one two", "", "three", "four five six", "naïve 中文", "x" * 60] * 3
FILES = {"a.jsonl": TEXTS[:7], "b.jsonl": TEXTS[7:9], "c.jsonl": TEXTS[9:]}
SUFFIXES = (".bin", ".idx")


@pytest.fixture
def source(tmp_path):
  folder = tmp_path / "in"
  folder.mkdir()
  for name, texts in FILES.items():
    lines = (json.dumps({"text": text}, ensure_ascii=False) for text in texts)
    (folder / name).write_text("\n".join(lines))
  return folder


@pytest.fixture
def stored(source, bucket):
  for path in source.iterdir():
    put_file(path, f"{bucket}/in/{path.name}")
  return f"{bucket}/in"


@pytest.fixture
def memory(monkeypatch):
  """A store's URL that leads to this process's memory: no server's pace."""
  fsspec = pytest.importorskip("fsspec.implementations.memory")

  class Store(fsspec.MemoryFileSystem):
    store, pseudo_dirs, cachable = {}, [""], False

  store = Store()
  monkeypatch.setattr(
    object_store, "filesystem", lambda url: (store, url.split(":/", 1)[1])
  )
  return "s3://bucket"


def options(path, prefix, **more):
  return Options(
    path,
    prefix,
    **{
      "unit_bytes": 200,
      "log_interval": 0,
      "tokenizer_backend": "huggingface",
      **more,
    },
  )


def local_pair(source, tmp_path, bpe, **more):
  """The pair's bytes as a run on a disk writes them."""
  prefix = tmp_path / "disk" / "x"
  prepare(options(source, prefix, overwrite=True, **more), tokenizer=bpe)
  return [
    Path(f"{prefix}_text_document{suffix}").read_bytes() for suffix in SUFFIXES
  ]


def stored_pair(prefix):
  return [read_bytes(f"{prefix}_text_document{suffix}") for suffix in SUFFIXES]


@pytest.mark.parametrize(
  "more",
  [
    {},
    {
      "partitions": 2,
      "workers": 2,
      "pack_to_seq_len": 3,
      "pack_tail": "carry",
      "shuffle": 3,
    },
  ],
)
def test_a_store_gives_the_bytes_of_a_disk(
  source, stored, bucket, tmp_path, bpe, *, more
):
  expected = local_pair(source, tmp_path, bpe, **more)
  prefix = f"{bucket}/out/x"
  report = prepare(options(stored, prefix, **more), tokenizer=bpe)
  assert stored_pair(prefix) == expected
  assert report.num_done == report.num_units > len(FILES)
  # Nothing else is there, and the manifest is read back.
  assert sorted(list_files(f"{bucket}/out")) == [
    "x_text_document.bin",
    "x_text_document.idx",
    "x_text_document.manifest.json",
  ]
  assert list_files(f"{bucket}/out/x_text_document.parts") == {}
  manifest = read_manifest(f"{prefix}_text_document")
  assert manifest == report.manifests["text"]
  assert [file.path for file in manifest.inputs] == [
    f"{stored}/{name}" for name in FILES
  ]
  on_disk = read_manifest(tmp_path / "disk/x_text_document")
  same = dataclasses.replace(manifest, inputs=on_disk.inputs)
  assert same == on_disk


def test_each_of_input_work_and_output_may_be_on_a_store(
  source, stored, bucket, tmp_path, bpe
):
  expected = local_pair(source, tmp_path, bpe)
  scratch = tmp_path / "scratch"
  # Work on a store, all else on a disk; then the other way round.
  prepare(
    options(
      source,
      tmp_path / "o/x",
      work_dir=f"{bucket}/work",
      scratch_dir=scratch,
    ),
    tokenizer=bpe,
  )
  for suffix, data in zip(SUFFIXES, expected):
    assert (tmp_path / f"o/x_text_document{suffix}").read_bytes() == data
  prepare(
    options(
      f"{stored}/*.jsonl",
      f"{bucket}/o/x",
      work_dir=tmp_path / "work",
      scratch_dir=scratch,
      keep_partition_files=True,
    ),
    tokenizer=bpe,
  )
  assert stored_pair(f"{bucket}/o/x") == expected
  lines = read_bytes(f"{bucket}/o/x_partition_0.jsonl").decode().splitlines()
  assert [json.loads(line)["text"] for line in lines] == TEXTS
  assert list(scratch.iterdir()) == []
  assert list_files(f"{bucket}/work/x_text_document.parts") == {}


def test_shards_of_two_processes_and_a_merge(
  source, stored, bucket, tmp_path, bpe, *, bpe_folder
):
  expected = local_pair(source, tmp_path, bpe, unit_bytes=8 << 20)
  command = [
    *("--dataset-name-or-path", stored),
    *("--output-prefix", f"{bucket}/out/x"),
    *("--tokenizer-name-or-path", str(bpe_folder)),
    *("--tokenizer-backend", "huggingface"),
  ]
  module = [sys.executable, "-m", "hpgrain.tools.offline_preparation"]
  shard = ["--num-shards", "2", "--shard-index"]
  with subprocess.Popen([*module, *command, *shard, "0"]) as other:
    assert main([*command, *shard, "1"]) == 0
    assert other.wait(timeout=100) == 0
  units = list_files(f"{bucket}/out/x_text_document.parts")
  assert sum(name.endswith(".unit") for name in units) == len(FILES)
  assert list_files(f"{bucket}/out") == {}
  assert main([*command, "--merge-only"]) == 0
  assert stored_pair(f"{bucket}/out/x") == expected


class Killed(BaseException):
  """Stands for the death of the process: nothing is done after it."""


class Fault:
  """Dies at the n-th change of the store, and counts them."""

  def __init__(self, place, monkeypatch):
    self.place, self.count = place, 0
    for name in ("_put", "_remove"):
      monkeypatch.setattr(object_store, name, self.wrap(name))
    # In order: which of two at once is the n-th is not told.
    monkeypatch.setattr(object_store, "_THREADS", 1)

  def wrap(self, name):
    real = getattr(object_store, name)

    def counted(*args):
      self.count += 1
      if self.count >= self.place:
        raise Killed
      return real(*args)

    return counted


@pytest.mark.parametrize("overwrite", [False, True])
def test_killed_at_any_change_of_the_store_it_goes_on(
  source, memory, tmp_path, bpe, *, overwrite
):
  expected = local_pair(source, tmp_path, bpe, unit_bytes=1 << 20)
  place = 0
  while True:
    place += 1
    folder = f"{memory}/{place}"
    request = options(
      source, f"{folder}/x", unit_bytes=1 << 20, overwrite=overwrite
    )
    if overwrite:
      before = options(source, f"{folder}/x", pack_to_seq_len=3)
      prepare(before, tokenizer=bpe)
    with pytest.MonkeyPatch.context() as monkeypatch:
      fault = Fault(place, monkeypatch)
      try:
        prepare(request, tokenizer=bpe)
      except Killed:
        pass
      else:
        break
    found = list_files(folder)
    parts = list_files(f"{folder}/x_text_document.parts")
    units = sum(name.endswith(".unit") for name in parts)
    if "x_text_document.manifest.json" in found:
      manifest = read_manifest(f"{folder}/x_text_document")
      whole = manifest.pack_to_seq_len is None
      assert (stored_pair(f"{folder}/x") == expected) == whole
      assert overwrite or whole
    if "x_text_document.idx" in found:
      assert "x_text_document.bin" in found
    report = prepare(request, tokenizer=bpe)
    # Nothing is done twice; where all is published, nothing at all.
    assert (report.num_reused, report.num_units) == (units, 3) or (
      (report.num_done, len(found)) == (0, 3)
    ), place
    assert stored_pair(f"{folder}/x") == expected, place
    assert len(list_files(folder)) == 3
    assert list_files(f"{folder}/x_text_document.parts") == {}
  # Request, units, done, the pair and its manifest, done, and all removed.
  # With `overwrite` the old .idx and manifest go first.
  assert fault.count == 2 * (1 + 3 + 1) + 4 + 2 * overwrite


def test_a_process_that_is_killed_leaves_what_the_next_goes_on_with(
  source, stored, bucket, tmp_path, bpe
):
  expected = local_pair(source, tmp_path, bpe)
  script = tmp_path / "run.py"
  bpe.save_pretrained(tmp_path / "tokenizer")
  script.write_text("""
import os, signal, sys
from hpgrain import object_store
from hpgrain.tools.offline_preparation import main
real, count = object_store.put_file, 0
def put_file(local, url, **options):
  global count
  count += 1
  if count == 3:
    os.kill(os.getpid(), signal.SIGKILL)
  real(local, url, **options)
object_store.put_file = put_file
sys.exit(main(sys.argv[1:]))
""")
  arguments = [
    *("--dataset-name-or-path", stored),
    *("--output-prefix", f"{bucket}/x"),
    *("--tokenizer-name-or-path", str(tmp_path / "tokenizer")),
    *("--tokenizer-backend", "huggingface"),
    *("--scratch-dir", str(tmp_path / "scratch")),
  ]
  died = subprocess.run(
    [sys.executable, script, *arguments],
    capture_output=True,
    text=True,
    check=False,
  )
  assert died.returncode == -signal.SIGKILL, died.stderr
  assert len(list((tmp_path / "scratch").iterdir())) == 1
  report = prepare(
    options(
      stored,
      f"{bucket}/x",
      scratch_dir=tmp_path / "scratch",
      unit_bytes=8 << 20,
    ),
    tokenizer=bpe,
  )
  assert (report.num_reused, report.num_done) == (2, 1)
  assert stored_pair(f"{bucket}/x") == expected
  assert list((tmp_path / "scratch").iterdir()) == []


def test_runs_at_once_give_the_same_and_do_no_harm(
  source, stored, bucket, tmp_path, bpe
):
  expected = local_pair(source, tmp_path, bpe)
  said = []
  start = threading.Barrier(3)

  def run():
    start.wait()
    try:
      prepare(options(stored, f"{bucket}/x"), tokenizer=bpe)
      said.append("done")
    except FileExistsError as error:
      said.append(str(error))

  threads = [threading.Thread(target=run) for _ in range(3)]
  for thread in threads:
    thread.start()
  for thread in threads:
    thread.join()
  assert "done" in said
  for line in said:
    assert (
      line == "done"
      or "Another run of the same" in line
      or ("The output exists" in line)
    ), line
  assert stored_pair(f"{bucket}/x") == expected
  assert read_manifest(f"{bucket}/x_text_document") is not None
  assert list_files(f"{bucket}/x_text_document.parts") == {}


def test_a_run_whose_units_another_removed_says_so(
  source, memory, bpe, monkeypatch
):
  real = corpus.WorkFolder.fetch_units

  def fetch_units(folder, count):
    monkeypatch.setattr(corpus.WorkFolder, "fetch_units", real)
    prepare(options(source, f"{memory}/x"), tokenizer=bpe)
    put_bytes(b"late", str(folder.unit_path(0)))
    return real(folder, count)

  monkeypatch.setattr(corpus.WorkFolder, "fetch_units", fetch_units)
  with pytest.raises(FileExistsError, match="Another run of the same output"):
    prepare(options(source, f"{memory}/x"), tokenizer=bpe)
  assert read_manifest(f"{memory}/x_text_document") is not None
  assert list_files(f"{memory}/x_text_document.parts") == {}


def test_another_content_under_the_name_is_not_replaced(
  source, memory, bpe, monkeypatch
):
  """Another run with another work folder, say."""
  real = corpus.publish

  def publish(*args, **kwargs):
    put_bytes(b"other", f"{memory}/x_text_document.bin")
    return real(*args, **kwargs)

  monkeypatch.setattr(corpus, "publish", publish)
  with pytest.raises(FileExistsError, match=r"another content.*_document.bin"):
    prepare(options(source, f"{memory}/x"), tokenizer=bpe)
  assert read_bytes(f"{memory}/x_text_document.bin") == b"other"


def test_an_output_is_only_replaced_when_asked(source, memory, tmp_path, bpe):
  prefix = f"{memory}/x"
  prepare(options(source, prefix), tokenizer=bpe)
  before = stored_pair(prefix)
  with pytest.raises(FileExistsError, match=f"exists: {prefix}_text_document."):
    prepare(options(source, prefix), tokenizer=bpe)
  more = {"pack_to_seq_len": 4}
  prepare(options(source, prefix, overwrite=True, **more), tokenizer=bpe)
  assert stored_pair(prefix) != before
  assert stored_pair(prefix) == local_pair(source, tmp_path, bpe, **more)
  assert read_manifest(f"{prefix}_text_document").pack_to_seq_len == 4


def test_while_a_pair_is_replaced_none_looks_whole(
  source, memory, bpe, monkeypatch
):
  prefix = f"{memory}/x"
  prepare(options(source, prefix), tokenizer=bpe)
  seen = []
  real = object_store.put_file

  def put_file(local, url, **more):
    if not url.endswith(".unit"):
      seen.append((url.rsplit(".", 1)[1], sorted(list_files(memory))))
    real(local, url, **more)

  monkeypatch.setattr(object_store, "put_file", put_file)
  prepare(options(source, prefix, overwrite=True), tokenizer=bpe)
  names = [f"x_text_document.{end}" for end in ("bin", "idx")]
  assert seen == [("bin", names[:1]), ("idx", names[:1]), ("json", names)]


def test_an_input_is_not_overwritten(bucket, bpe):
  put_bytes(b'{"text": "a"}', f"{bucket}/x_partition_0.jsonl")
  request = options(
    f"{bucket}/*.jsonl",
    f"{bucket}/x",
    keep_partition_files=True,
    overwrite=True,
  )
  with pytest.raises(ValueError, match=r"overwrite the input s3://.*_0.jsonl"):
    prepare(request, tokenizer=bpe)


def test_an_object_that_changes_is_noticed(stored, bucket, bpe, monkeypatch):
  """Between planning and reading, with the same size."""
  data = read_bytes(f"{stored}/b.jsonl")
  real = corpus.units

  def units(*args, **kwargs):
    found = real(*args, **kwargs)
    put_bytes(data.swapcase(), f"{stored}/b.jsonl")
    return found

  monkeypatch.setattr(corpus, "units", units)
  with pytest.raises(ValueError, match=f"{stored}/b.jsonl changed while it"):
    prepare(options(stored, f"{bucket}/x"), tokenizer=bpe)
  # What was done of it before is another request's.
  monkeypatch.undo()
  put_bytes(data, f"{stored}/b.jsonl")
  prepare(options(stored, f"{bucket}/x"), tokenizer=bpe)


def test_unfinished_work_of_other_input_is_refused(
  stored, bucket, bpe, monkeypatch
):
  with pytest.MonkeyPatch.context() as patch:
    Fault(4, patch)
    with pytest.raises(Killed):
      prepare(options(stored, f"{bucket}/x"), tokenizer=bpe)
  data = read_bytes(f"{stored}/a.jsonl").replace(b"one", b"two")
  put_bytes(data, f"{stored}/a.jsonl")
  with pytest.raises(
    ValueError, match=rf"{bucket}/x_text_document.parts holds.*version is '\""
  ):
    prepare(options(stored, f"{bucket}/x"), tokenizer=bpe)
  report = prepare(
    options(stored, f"{bucket}/x", overwrite=True), tokenizer=bpe
  )
  assert report.num_reused == 0


def run_main(capfd, **flags):
  arguments = {"tokenizer-name-or-path": "none", **flags}
  code = main(
    [part for name, value in arguments.items() for part in (f"--{name}", value)]
  )
  return code, capfd.readouterr().err


@pytest.mark.usefixtures("s3")
def test_a_missing_bucket_is_one_line(tmp_path, bucket, stored, capfd):
  missing = "s3://no-bucket-of-this-name"
  for source, prefix, named in (
    (f"{missing}/in", tmp_path / "x", missing),
    (stored, f"{missing}/out/x", missing),
    (f"{bucket}/nothing", tmp_path / "x", f"{bucket}/nothing does not exist"),
  ):
    flags = {"dataset-name-or-path": source, "output-prefix": str(prefix)}
    code, said = run_main(capfd, **flags)
    assert code == 1
    assert said.startswith("offline_preparation: FileNotFoundError: ")
    assert named in said
    assert said.count("\n") == 1


def test_places_that_cannot_be_are_refused(stored, tmp_path, capfd):
  for flags, named in (
    ({"output-prefix": "ftp://host/x"}, "Give a local path, or a URL that"),
    ({"output-prefix": "s3://bucket"}, "must name a bucket and something in"),
    (
      {"output-prefix": str(tmp_path / "x"), "work-dir": "memory://a/b"},
      "memory://a/b cannot be written to",
    ),
    (
      {"output-prefix": "s3://a/x", "scratch-dir": "s3://a/b"},
      "scratch_dir must be a local folder, got s3://a/b",
    ),
  ):
    code, said = run_main(capfd, **{"dataset-name-or-path": stored, **flags})
    assert code == 1
    assert named in said
    assert said.count("\n") == 1


def test_workers_put_their_units_themselves(
  source, stored, bucket, tmp_path, bpe, *, monkeypatch
):
  monkeypatch.setattr("hpgrain.tools.engine.SMALL_INPUT_BYTES", 0)
  expected = local_pair(source, tmp_path, bpe, workers=2)
  scratch = tmp_path / "scratch"
  report = prepare(
    options(stored, f"{bucket}/x", workers=2, scratch_dir=scratch),
    tokenizer=bpe,
  )
  assert report.num_done == report.num_units
  assert stored_pair(f"{bucket}/x") == expected
  assert list(scratch.iterdir()) == []


def test_prepare_corpus_takes_urls_too(source, stored, bucket, tmp_path, bpe):
  manifest = prepare_corpus(
    stored, output_prefix=f"{bucket}/x", tokenizer=bpe, log_interval=0
  )
  assert manifest.records == len(TEXTS)
  expected = local_pair(source, tmp_path, bpe)
  assert stored_pair(f"{bucket}/x") == expected
