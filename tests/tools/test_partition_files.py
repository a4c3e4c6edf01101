import errno
import itertools
import json
import os

import pytest

from hpgrain.tools.corpus import prepare
from hpgrain.tools.options import Options

RECORDS = [
  {"text": "a b", "more": "é 中", "n": 1},
  {"text": "", "more": "c"},
  {"text": "c"},
  {"text": "d\n\"e'\\", "more": "\u2028"},
  {"text": "f", "more": ""},
]
GOOD = [
  {"text": record["text"], "more": record["more"]}
  for record in RECORDS
  if "more" in record
]


@pytest.fixture
def source(tmp_path):
  path = tmp_path / "in.jsonl"
  path.write_text("".join(json.dumps(record) + "\n" for record in RECORDS))
  return path


def options(source, out, **changes):
  return Options(
    source,
    out / "x",
    json_keys=("text", "more"),
    keep_partition_files=True,
    on_bad_record="skip",
    unit_bytes=40,
    log_interval=0,
    **{"partitions": 3, "workers": 3} | changes,
  )


def read(out, count):
  found = [
    [
      json.loads(line)
      # Not splitlines: some characters that end lines are no line ends here.
      for line in (out / f"x_partition_{p}.jsonl").read_text().split("\n")[:-1]
    ]
    for p in range(count)
  ]
  assert len(list(out.glob("x_partition_*"))) == count
  return found


@pytest.mark.parametrize(
  ("sequential", "expected"),
  [
    (False, [[0, 3], [1], [2]]),
    (True, [[0, 1], [2, 3], []]),
  ],
)
def test_each_partition_has_its_good_records_and_the_keys_asked_for(
  source, tmp_path, bpe, sequential, expected
):
  out = tmp_path / "out"
  prepare(
    options(source, out, keep_sequential_samples=sequential), tokenizer=bpe
  )
  assert read(out, 3) == [[GOOD[i] for i in some] for some in expected]
  # Readable by people: not escaped.
  assert "中" in (out / "x_partition_0.jsonl").read_text()


def test_they_are_made_by_whoever_merges(source, tmp_path, bpe):
  out = tmp_path / "out"
  for index in range(2):
    prepare(
      options(source, out, num_shards=2, shard_index=index), tokenizer=bpe
    )
    assert not list(out.glob("x_partition*"))
  prepare(options(source, out, merge_only=True), tokenizer=bpe)
  found = [*itertools.chain(*read(out, 3))]
  assert found == [GOOD[0], GOOD[3], GOOD[1], GOOD[2]]


def test_none_is_left_half_written(source, tmp_path, bpe, monkeypatch):
  out = tmp_path / "out"
  dump = json.dump
  count = 0

  def full(content, file, **arguments):
    nonlocal count
    if "ensure_ascii" in arguments and "text" in content:
      count += 1
      if count == 4:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    dump(content, file, **arguments)

  with monkeypatch.context() as context:
    context.setattr(json, "dump", full)
    with pytest.raises(OSError, match="No space left"):
      prepare(options(source, out), tokenizer=bpe)
  assert [path.name for path in out.iterdir()] == ["x_text_more_document.parts"]
  # The same again goes on.
  report = prepare(options(source, out), tokenizer=bpe)
  assert report.num_done == 0
  assert sum(map(len, read(out, 3))) == len(GOOD)


def test_one_that_is_there_is_not_written_over(source, tmp_path, bpe):
  out = tmp_path / "out"
  out.mkdir()
  (out / "x_partition_1.jsonl").write_text("mine")
  with pytest.raises(FileExistsError, match=r"x_partition_1\.jsonl"):
    prepare(options(source, out), tokenizer=bpe)
  assert [path.name for path in out.iterdir()] == ["x_partition_1.jsonl"]
  prepare(options(source, out, overwrite=True), tokenizer=bpe)
  assert sum(map(len, read(out, 3))) == len(GOOD)
