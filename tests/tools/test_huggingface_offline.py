"""The command, against a hub of its own; `forked.py` saves the imports."""

import gzip
import io
import json
import subprocess
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from forked import Forked
from helpers_tokenizer import read_pair, save_word_tokenizer
from hub_server import Hub

from hpgrain.manifest import DatasetSource, read_manifest
from hpgrain.tools.huggingface_offline import download_folder, parser

_MAIN = "from hpgrain.tools.huggingface_offline import main\n"
_CALL = "raise SystemExit(main())"
COMMAND = _MAIN + _CALL
# An answer that never comes, without the pauses before it is given up.
NO_PAUSES = "import hpgrain.tools.hub_revision as r; r._PAUSES = (0, 0)\n"
NO_HUB = (
  "import huggingface_hub.constants as c; c.ENDPOINT = 'http://127.0.0.1:9'\n"
)

CARD = b"""---
configs:
- config_name: en
  data_files:
  - split: train
    path: en/train.jsonl.gz
  - split: test
    path: en/test.jsonl
- config_name: fr
  data_files: fr.jsonl
---
"""


def lines(*texts):
  rows = [{"text": text, "n": i} for i, text in enumerate(texts)]
  return "".join(json.dumps(row) + "\n" for row in rows).encode()


def parquet(**columns):
  file = io.BytesIO()
  pq.write_table(pa.table(columns), file)
  return file.getvalue()


@pytest.fixture(scope="module")
def hub():
  """org/two with subsets, in two commits, of which v1 is the first."""
  with Hub() as made:
    files = {
      "README.md": CARD,
      # With the word tokenizer: "a" is 3, "b" 4, "c" 5, "d" 6; EOD is 0.
      "en/train.jsonl.gz": gzip.compress(lines("a b", "c"), mtime=0),
      "en/test.jsonl": lines("d"),
      "fr.jsonl": lines("e e", '\u2028é\n\x7f\x00\\"'),
    }
    first = made.commit("org/two", files)
    made.tag("org/two", "v1", first)
    files["en/train.jsonl.gz"] = gzip.compress(lines("b", "d d"), mtime=0)
    made.commit("org/two", files)
    yield made


@pytest.fixture(autouse=True)
def forget_requests(hub):
  """Tests come in any order; what another one asked for is not theirs."""
  hub.forget()
  hub.heal()


@pytest.fixture
def first(hub):
  return hub.find("org/two", "v1")


@pytest.fixture
def second(hub):
  return hub.find("org/two", "main")


@pytest.fixture(scope="module")
def home(tmp_path_factory):
  return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def online(hub, home, word_folder, tmp_path_factory):
  """Runs code where the hub and the libraries are."""
  file = tmp_path_factory.mktemp("warm") / "a.jsonl"
  file.write_bytes(lines("a"))
  # Imports what they import late.
  warm = (
    "import datasets, gigatoken, orjson\n"
    "import fsspec.implementations.http\n"
    "import hpgrain.tools.huggingface_offline\n"
    "from hpgrain.tokenizer import load_tokenizer\n"
    f"load_tokenizer({str(word_folder)!r})\n"
    f"datasets.load_dataset_builder('json', data_files=[{str(file)!r}])\n"
  )
  environment = {"HF_ENDPOINT": hub.url, "HF_HOME": str(home)}
  with Forked(warm, **environment, HF_HUB_OFFLINE="0") as made:
    yield made


class Command:
  """Runs the command with an output of its own."""

  def __init__(self, fork, out, tokenizer):
    self.fork, self.out = fork, out
    self.flags = (f"--output-prefix={out}/x", f"--tokenizer={tokenizer}")

  def __call__(self, dataset, *flags, before=""):
    return self.fork.run(_MAIN + before + _CALL, *self.argv(dataset, *flags))

  def argv(self, dataset, *flags):
    return (f"--dataset={dataset}", "--workers=1", *self.flags, *flags)

  def tokens(self, dataset, *flags, before=""):
    """Of the pair."""
    done = self(dataset, *flags, before=before)
    assert done.status == 0, done.err
    return read_pair(self.out / "x_text_document")[1]

  def refused(self, dataset, *flags, before=""):
    """The one line of an error; there must be nothing else to see."""
    done = self(dataset, *flags, before=before)
    assert done.status == 1, (done.out, done.err)
    assert "Traceback" not in done.err
    assert not list(self.out.glob("**/*.jsonl"))
    assert not list(self.out.glob("**/*.bin"))
    assert not list(self.out.glob("**/.*.tmp"))
    (said,) = [
      line
      for line in done.err.splitlines()
      if line.startswith("huggingface_offline: ")
      and not line.startswith("huggingface_offline: UserWarning: ")
    ]
    return said


@pytest.fixture
def command(online, tmp_path, word_folder):
  return Command(online, tmp_path / "out", word_folder)


@pytest.fixture
def offline(online, tmp_path, word_folder):
  """The command on a machine without the hub, with the same cache."""

  class Offline(Command):
    def __call__(self, dataset, *flags, before=""):
      off = "import datasets; datasets.config.HF_HUB_OFFLINE = True\n"
      return super().__call__(dataset, *flags, before=off + before)

  return Offline(online, tmp_path / "offline", word_folder)


def jsonl(folder):
  (found,) = folder.glob("*.jsonl")
  return found


def test_flags_are_those_of_the_document():
  # The table of 2.3.1, in its order; the first three have no default.
  table = {
    "dataset": "D",
    "dataset_subset": None,
    "dataset_split": "train",
    "revision": None,
    "cache_dir": None,
    "data_dir": None,
    "data_files": None,
    "num_proc": None,
    "json_keys": ["text"],
    "output_prefix": "P",
    "download_dir": None,
    "tokenizer": "T",
    "tokenizer_use_fast": True,
    "trust_remote_code": False,
    "append_eod": True,
    "workers": 8,
    "partitions": 1,
    "keep_sequential_samples": False,
    "pack_to_seq_len": None,
    "keep_partition_files": False,
  }
  required = ["--dataset", "D", "--output-prefix", "P", "--tokenizer", "T"]
  found = vars(parser().parse_args(required))
  assert list(found.items())[:20] == list(table.items())


@pytest.mark.parametrize("left_out", ["dataset", "output-prefix", "tokenizer"])
def test_three_flags_are_required(left_out, capsys):
  required = ["dataset", "output-prefix", "tokenizer"]
  given = [f"--{name}=x" for name in required if name != left_out]
  with pytest.raises(SystemExit, match="2"):
    parser().parse_args(given)
  assert f"required: --{left_out}" in capsys.readouterr().err


def test_help_is_shown_without_the_libraries():
  code = (
    "import runpy, sys\n"
    "try:\n"
    "  runpy.run_module('hpgrain.tools.huggingface_offline',"
    " run_name='__main__')\n"
    "except SystemExit as end: assert not end.code\n"
    "slow = {'datasets', 'transformers', 'huggingface_hub', 'jax', 'pyarrow'}\n"
    "assert not slow & set(sys.modules), slow & set(sys.modules)\n"
  )
  done = subprocess.run(
    [sys.executable, "-c", code, "--help"],
    check=False,
    capture_output=True,
    text=True,
  )
  assert done.returncode == 0, done.stderr
  assert "--dataset-subset NAME" in done.stdout


def test_from_the_hub_to_json_lines_and_the_pair(hub, command, second, home):
  assert command.tokens("org/two", "--dataset-subset=en") == [4, 0, 6, 6, 0]
  made = jsonl(command.out / "huggingface_jsonl")
  assert made.read_bytes() == b'{"text":"b"}\n{"text":"d d"}\n'
  manifest = read_manifest(command.out / "x_text_document")
  assert manifest.dataset == DatasetSource("org/two", "en", "train", second)
  assert [file.path for file in manifest.inputs] == [str(made)]
  assert (home / "datasets").is_dir()
  assert sorted(path.name for path in command.out.iterdir()) == [
    "huggingface_jsonl",
    "x_text_document.bin",
    "x_text_document.idx",
    "x_text_document.manifest.json",
  ]
  # Nothing of the run but the file and its fingerprint.
  assert sorted(path.name for path in made.parent.iterdir()) == [
    made.name,
    f"{made.stem}.manifest.json",
  ]


def test_texts_are_written_as_they_are(command):
  done = command("org/two", "--dataset-subset=fr", "--append-eod=false")
  assert done.status == 0, done.err
  made = jsonl(command.out / "huggingface_jsonl").read_bytes()
  assert made == (
    '{"text":"e e"}\n{"text":"\u2028é\\n\x7f\\u0000\\\\\\""}\n'.encode()
  )
  # Without the faster package: the same bytes.
  again = Command(command.fork, command.out / "again", "")
  again.flags = (f"--output-prefix={again.out}/x", command.flags[1])
  before = "import sys; sys.modules['orjson'] = None\n"
  done = again("org/two", "--dataset-subset=fr", before=before)
  assert done.status == 0, done.err
  assert jsonl(again.out / "huggingface_jsonl").read_bytes() == made


def test_pack_and_partitions_and_their_files(command):
  tokens = command.tokens(
    "org/two",
    "--dataset-subset=en",
    "--dataset-split=train+test+train[:1]",
    "--pack-to-seq-len=1",
    "--workers=2",
    "--partitions=2",
    "--keep-sequential-samples",
    "--keep-partition-files",
  )
  # b EOD, d d | EOD dropped; d EOD, b EOD
  assert tokens == [4, 0, 6, 6, 6, 0, 4, 0]
  kept = sorted(path.name for path in command.out.glob("*.jsonl"))
  assert kept == ["x_partition_0.jsonl", "x_partition_1.jsonl"]
  assert (command.out / kept[1]).read_text() == (
    '{"text": "d"}\n{"text": "b"}\n'
  )


def test_a_second_run_asks_for_the_commit_and_nothing_else(hub, command):
  command.tokens("org/two", "--dataset-subset=en")
  made = jsonl(command.out / "huggingface_jsonl")
  before = made.stat()
  hub.forget()
  command.tokens("org/two", "--dataset-subset=en", "--overwrite")
  asked = [request.path for request in hub.requests]
  assert [path for path in asked if "agent-harnesses" not in path] == [
    "/api/datasets/org/two"
  ]
  assert made.stat() == before


def test_another_folder_reuses_the_cache(hub, command, tmp_path):
  command.tokens("org/two", "--dataset-subset=en")
  hub.forget()
  folder = tmp_path / "elsewhere"
  tokens = command.tokens(
    "org/two",
    "--dataset-subset=en",
    f"--download-dir={folder}",
    "--overwrite",
  )
  assert tokens == [4, 0, 6, 6, 0]
  assert jsonl(folder).read_bytes() == b'{"text":"b"}\n{"text":"d d"}\n'
  assert hub.downloads() == []


def test_cache_dir_is_where_rows_are_kept(hub, command, tmp_path):
  flags = ("--dataset-subset=en", f"--cache-dir={tmp_path}/cache")
  command.tokens("org/two", *flags)
  found = list((tmp_path / "cache").glob("**/*.arrow"))
  assert {path.name for path in found} == {"two-train.arrow", "two-test.arrow"}


def test_a_new_commit_downloads_what_changed(hub, command, first, second):
  at_first = ("--dataset-subset=en", f"--revision={first}")
  assert command.tokens("org/two", *at_first) == [3, 4, 0, 5, 0]
  hub.forget()
  tokens = command.tokens(
    "org/two", "--dataset-subset=en", f"--revision={second}", "--overwrite"
  )
  assert tokens == [4, 0, 6, 6, 0]
  assert set(hub.downloads()) <= {"en/train.jsonl.gz"}
  assert len(list(command.out.glob("*/*.jsonl"))) == 2


@pytest.mark.parametrize("revision", ["v1", "commit", "beginning of it"])
def test_a_revision_is_taken_at_its_commit(command, first, revision):
  named = {"commit": first, "beginning of it": first[:9]}
  flag = f"--revision={named.get(revision, revision)}"
  tokens = command.tokens("org/two", "--dataset-subset=en", flag)
  assert tokens == [3, 4, 0, 5, 0]
  assert read_manifest(command.out / "x_text_document").dataset.commit == first


@pytest.mark.parametrize(
  ("flags", "said"),
  [
    (
      ["--dataset-subset=en", "--dataset-split=valid"],
      "ValueError: org/two has no split 'valid' (--dataset-split). There are:"
      " train, test.",
    ),
    (
      ["--dataset-subset=en", "--dataset-split=train[:x]"],
      "ValueError: The split 'train[:x]' of org/two cannot be read. Give a name"
      " (train, test), a part",
    ),
    (
      ["--dataset-subset=de"],
      "ValueError: org/two has no subset 'de' (--dataset-subset). There are:"
      " en, fr.",
    ),
    (
      [],
      "ValueError: org/two has several subsets: name one with --dataset-subset."
      " They are: en, fr.",
    ),
    (
      ["--dataset-subset=en", "--json-keys", "text", "txt"],
      "ValueError: org/two has no column 'txt'. Its columns are n, text;",
    ),
    (
      ["--dataset-subset=en", "--json-keys=n"],
      "ValueError: The column 'n' of org/two holds values of type int64, not"
      " strings.",
    ),
    (
      ["--dataset-subset=en", "--revision=v2"],
      "ValueError: org/two has no revision 'v2' on http://127.0.0.1",
    ),
    (["--revision="], "ValueError: The revision is empty: name one, or leave"),
    (["--download-dir=/dev/null"], "ValueError: /dev/null is no folder, and"),
    (["--num-proc=0"], "ValueError: num_proc must be positive, got 0."),
    (["--workers=3", "--partitions=2"], "ValueError: workers must be a mult"),
    (["--pack-to-seq-len=0"], "ValueError: pack_to_seq_len must be positive"),
    (["--download-dir=s3://b/x"], "ValueError: --download-dir must be a local"),
  ],
)
def test_what_is_not_there_is_named_with_what_is(command, flags, said):
  assert said in command.refused("org/two", *flags)


def test_a_wrong_split_downloads_nothing(hub, command):
  hub.commit("org/large", {"train.jsonl": lines("a"), "test.jsonl": lines()})
  said = command.refused("org/large", "--dataset-split=validation")
  assert "There are: train, test." in said
  assert hub.downloads() == []


@pytest.mark.parametrize(
  ("dataset", "said"),
  [
    ("org/none", "has no dataset 'org/none' that this login may see. Check"),
    ("org/gated", "The dataset org/gated is gated: ask for access at http://"),
    ("./none", "FileNotFoundError: The dataset folder ./none does not exist."),
    ("a/b/c", "'a/b/c' is no name of a dataset on the hub, nor a local folder"),
    ("json", "'json' is a reader of files, so it needs some: give them with"),
  ],
)
def test_a_dataset_that_is_not_to_be_had(hub, command, dataset, said):
  hub.commit("org/gated", {"train.jsonl": lines("a")})
  hub.gate("org/gated")
  assert said in command.refused(dataset)


def test_an_empty_split_is_refused(hub, command):
  hub.commit("org/empty", {"train.jsonl": b"", "test.jsonl": lines("a")})
  said = command.refused("org/empty")
  assert "cannot load org/empty: there is no row in its files." in said
  hub.commit("org/none", {"train.jsonl": lines("a")})
  said = command.refused("org/none", "--dataset-split=train[1:]")
  assert "The split 'train[1:]' of org/none has no row." in said
  files = {"train.parquet": parquet(text=pa.array([], pa.string()))}
  hub.commit("org/empty", files)
  said = command.refused("org/empty")
  assert "it has a Parquet file without rows, which datasets cannot" in said


def test_a_null_is_a_bad_record(hub, command):
  hub.commit("org/null", {"train.parquet": parquet(text=["a", None, "b"])})
  done = command("org/null")
  assert (done.status, "record 2 (line 2" in done.err) == (1, True), done.err
  assert command.tokens("org/null", "--on-bad-record=skip") == [3, 0, 4, 0]


def test_several_keys_give_several_pairs(hub, command):
  hub.commit("org/keys", {"train.parquet": parquet(text=["a"], more=["b c"])})
  assert command.tokens("org/keys", "--json-keys", "more", "text") == [3, 0]
  assert read_pair(command.out / "x_more_document")[1] == [4, 5, 0]
  made = jsonl(command.out / "huggingface_jsonl").read_bytes()
  assert made == b'{"more":"b c","text":"a"}\n'


def test_without_the_hub_the_commit_asked_for_is_given(
  command, offline, first, second
):
  # The newest in the cache is the second, which datasets would take.
  at_first = ("--dataset-subset=en", f"--revision={first}")
  command.tokens("org/two", *at_first)
  command.tokens("org/two", "--dataset-subset=en", "--overwrite")
  assert offline.tokens("org/two", *at_first) == [3, 4, 0, 5, 0]
  assert read_manifest(offline.out / "x_text_document").dataset.commit == first


def test_without_the_hub_a_tag_is_what_it_was(command, offline):
  command.tokens("org/two", "--dataset-subset=en", "--revision=v1")
  tagged = ("--dataset-subset=en", "--revision=v1")
  assert offline.tokens("org/two", *tagged) == [3, 4, 0, 5, 0]


def test_without_the_hub_and_a_revision_the_commit_is_told(
  command, offline, second
):
  command.tokens("org/two", "--dataset-subset=en")
  done = offline("org/two", "--dataset-subset=en")
  assert done.status == 0, done.err
  assert (
    "The hub is not asked (HF_HUB_OFFLINE or HF_DATASETS_OFFLINE is set)."
    f" Taking the last commit seen of its branch main: org/two at {second}."
  ) in done.err
  assert read_pair(offline.out / "x_text_document")[1] == [4, 0, 6, 6, 0]


@pytest.mark.parametrize(
  ("flags", "said"),
  [
    (
      ["--revision=" + "0" * 40],
      f"and the cache does not have the commit {'0' * 40} of org/two. It has",
    ),
    (
      ["--revision=v3"],
      "and the cache does not tell what commit the revision 'v3' of org/two is",
    ),
    (
      ["--revision=../main"],
      "and the cache does not tell what commit the revision '../main' of",
    ),
    (["--data-dir=en"], "--data-dir and --data-files cannot be looked up"),
    (["--dataset-split=valid"], "There are: train, test."),
    (["--json-keys=n"], "holds values of type int64, not strings"),
  ],
)
def test_without_the_hub_nothing_else_is_given(command, offline, flags, said):
  command.tokens("org/two", "--dataset-subset=en")
  assert said in offline.refused("org/two", "--dataset-subset=en", *flags)


def test_without_the_hub_the_subset_is_the_one_the_card_means(command, offline):
  command.tokens("org/two", "--dataset-subset=en")
  # Only one of two is in the cache perhaps, but two there are.
  assert "has several subsets" in offline.refused("org/two")


def test_what_was_never_downloaded_needs_the_hub(hub, offline):
  said = offline.refused("org/new")
  assert "and org/new is not in the cache. Run this once where" in said


def test_a_hub_that_is_gone_leaves_the_cache(command, offline, second):
  command.tokens("org/two", "--dataset-subset=en")
  done = command(
    "org/two",
    "--dataset-subset=en",
    "--overwrite",
    before=NO_PAUSES + NO_HUB,
  )
  assert done.status == 0, done.err
  assert "The hub at http://127.0.0.1:9 cannot be reached: [Errno 111]" in (
    done.err
  )
  assert f"org/two at {second}" in done.err


def test_a_hub_that_fails_once_is_asked_again(hub, command):
  hub.fail("api/datasets/org/two", "unavailable")
  tokens = command.tokens("org/two", "--dataset-subset=en", before=NO_PAUSES)
  assert tokens == [4, 0, 6, 6, 0]


def test_a_hub_that_goes_on_failing_is_given_up(hub, command):
  hub.commit("org/fail", {"train.jsonl": lines("a")})
  hub.fail("api/datasets/org/fail", "unavailable", times=3)
  said = command.refused("org/fail", before=NO_PAUSES)
  assert "cannot be reached: it answers 503, and org/fail is not" in said


def test_another_commit_of_the_cache_is_not_taken(command, first, second):
  command.tokens("org/two", "--dataset-subset=en")
  code = (
    "import datasets, os; datasets.config.HF_HUB_OFFLINE = True\n"
    "import huggingface_hub.constants as c; c.HF_HUB_OFFLINE = True\n"
    "from hpgrain.tools.hub_dataset import open_builder\n"
    "from hpgrain.tools.hub_request import DatasetRequest\n"
    "request = DatasetRequest('org/two', ('text',), 'en')\n"
    f"open_builder(request, commit={'1' * 40!r})\n"
  )
  done = command.fork.run(code)
  assert "ConnectionError: The hub was lost while org/two was looked" in (
    done.err
  )


def test_a_file_cut_short_is_downloaded_again(hub, command):
  hub.commit("org/cut", {"train.jsonl": lines(*["a b"] * 500)})
  hub.fail("resolve", "truncated")
  assert command.tokens("org/cut") == [3, 4, 0] * 500


def test_a_file_always_cut_short_leaves_nothing(hub, command):
  hub.commit("org/bad", {"train.jsonl": lines(*["a b"] * 400)})
  hub.fail("train.jsonl", "truncated", times=1000)
  before = "import time; time.sleep = lambda seconds: None\n"
  said = command.refused("org/bad", before=before)
  assert "Hugging Face datasets cannot load org/bad" in said
  hub.heal()
  assert command.tokens("org/bad") == [3, 4, 0] * 400


def test_broken_data_is_an_error_that_does_not_quote_it(hub, command):
  hub.commit("org/broken", {"train.jsonl": b'{"text": "secret words'})
  done = command("org/broken")
  assert done.status == 1
  assert "secret" not in done.out + done.err
  assert "Hugging Face datasets cannot load org/broken: Dataset" in done.err


def test_a_file_of_another_commit_is_not_taken_for_this(command, first, second):
  flags = ("--dataset-subset=en", "--overwrite")
  command.tokens("org/two", *flags, f"--revision={first}")
  folder = command.out / "huggingface_jsonl"
  old = jsonl(folder)
  command.tokens("org/two", *flags, f"--revision={second}")
  (new,) = set(folder.glob("*.jsonl")) - {old}
  # As someone would who trusts names.
  old.replace(new)
  old.with_suffix(".manifest.json").replace(new.with_suffix(".manifest.json"))
  done = command("org/two", *flags)
  assert done.status == 0, done.err
  assert f"{new} is of another dataset or revision: it is written" in done.err
  assert read_pair(command.out / "x_text_document")[1] == [4, 0, 6, 6, 0]


def test_a_changed_file_is_written_again(command):
  flags = ("--dataset-subset=en", "--overwrite")
  command.tokens("org/two", *flags)
  made = jsonl(command.out / "huggingface_jsonl")
  content = made.read_bytes()
  for other in (content[:-5], content.replace(b"b", b"c")):
    made.write_bytes(other)
    done = command("org/two", *flags)
    assert f"{made} was changed after it was written" in done.err
    assert made.read_bytes() == content
  # A copy is as good.
  copy = made.with_name("copy")
  copy.write_bytes(content)
  copy.replace(made)
  assert f"reusing {made} (2 rows)" in command("org/two", *flags).err


def test_a_fingerprint_without_its_file_proves_nothing(command):
  command.tokens("org/two", "--dataset-subset=en")
  made = jsonl(command.out / "huggingface_jsonl")
  made.unlink()
  tokens = command.tokens("org/two", "--dataset-subset=en", "--overwrite")
  assert tokens == [4, 0, 6, 6, 0]


def test_two_at_once_download_once(hub, command, tmp_path, word_folder):
  files = {f"train-{i}.parquet": parquet(text=["a", "bc"[i]]) for i in (0, 1)}
  hub.commit("org/cold", files)
  hub.forget()
  folder = f"--download-dir={tmp_path}/both"
  both = [Command(command.fork, tmp_path / name, word_folder) for name in "pq"]
  runs = [
    command.fork.start(COMMAND, *one.argv("org/cold", folder)) for one in both
  ]
  ends = [command.fork.wait(run) for run in runs]
  assert [end.status for end in ends] == [0, 0], ends
  assert sorted(hub.downloads()) == sorted(files)
  for one in both:
    assert read_pair(one.out / "x_text_document")[1] == [3, 0, 4, 0, 3, 0, 5, 0]
  assert len(list((tmp_path / "both").iterdir())) == 2


@pytest.mark.parametrize("place", ["file.write", "write_json", "publish"])
def test_killed_as_it_writes_leaves_nothing_and_goes_on(hub, command, place):
  hub.commit("org/kill", {"train.jsonl": lines(*["a"] * 2500)})
  before = (
    "import hpgrain.tools.normalized_jsonl as n, os\n"
    "def die(*a, **k): os.kill(os.getpid(), 9)\n"
  )
  if place == "file.write":
    before += (
      "import hpgrain.tools.jsonl_lines as n\n"
      "real, seen = n._encoder(), []\n"
      "def encode(row):\n"
      "  seen.append(1)\n"
      "  return die() if len(seen) > 2000 else real(row)\n"
      "n._encoder = lambda: encode\n"
    )
  else:
    before += f"n.{place} = die\n"
  assert command("org/kill", before=before).status == -9
  folder = command.out / "huggingface_jsonl"
  assert not list(folder.glob("*.jsonl"))
  assert not list(command.out.glob("*.bin"))
  assert command.tokens("org/kill") == [3, 0] * 2500
  assert len(list(folder.iterdir())) == 2


def test_a_full_disk_is_an_error_and_leaves_nothing(command):
  before = (
    "import hpgrain.tools.jsonl_lines as n, errno, os\n"
    "def full(fd): raise OSError(errno.ENOSPC, 'No space left on device')\n"
    "n.os.fsync = full\n"
  )
  said = command.refused("org/two", "--dataset-subset=en", before=before)
  assert "No space left on device" in said


def test_processes_that_make_rows_do_not_change_them(hub, command):
  files = {f"train-{i}.parquet": parquet(text=["a b c"[i]]) for i in (0, 2, 4)}
  hub.commit("org/many", files)
  assert command.tokens("org/many", "--num-proc=2") == [3, 0, 4, 0, 5, 0]


def test_data_files_and_data_dir_choose_among_the_files(hub, command):
  files = {"train.jsonl": lines("a"), "more/train.jsonl": lines("b")}
  hub.commit("org/files", files)
  again = "--overwrite"
  assert command.tokens("org/files", "--data-dir=more") == [4, 0]
  chosen = ("--data-files", "train.jsonl", "more/*.jsonl", again)
  assert command.tokens("org/files", *chosen) == [3, 0, 4, 0]
  done = command("org/files", "--data-files", "none.jsonl", again)
  assert "FileNotFoundError: Hugging Face datasets cannot load org/files: " in (
    done.err
  )
  assert "there is no file in it for --data-files ['none.jsonl'], or" in (
    done.err
  )
  hub.commit("org/fresh", files)
  done = command("org/fresh", "--data-files", "none.jsonl", again)
  assert "FileNotFoundError: Hugging Face datasets cannot load org/fresh: " in (
    done.err
  )
  assert "/none.jsonl'.\n" in done.err


def test_a_local_folder_is_read_again_when_it_changes(command, tmp_path):
  folder = tmp_path / "My set"
  folder.mkdir()
  # With such a card, datasets itself goes on giving what it read first.
  (folder / "README.md").write_text(
    "---\nconfigs:\n- config_name: en\n  data_files: train.jsonl\n---\n"
  )
  (folder / "train.jsonl").write_bytes(lines("a"))
  assert command.tokens(folder) == [3, 0]
  assert read_manifest(command.out / "x_text_document").dataset == (
    DatasetSource(str(folder), "en", "train", None)
  )
  assert "reusing" in command(folder, "--overwrite").err
  (folder / "train.jsonl").write_bytes(lines("b"))
  assert command.tokens(folder, "--overwrite") == [4, 0]


def test_a_reader_takes_local_files(command, tmp_path):
  (tmp_path / "a.csv").write_text("text,n\na b,1\n")
  flags = ("--data-files", f"{tmp_path}/*.csv")
  assert command.tokens("csv", *flags) == [3, 4, 0]
  done = command("csv", *flags, "--dataset-split=test", "--overwrite")
  assert "csv has no split 'test' (--dataset-split). There is: train." in (
    done.err
  )
  done = command("csv", "--data-files", f"{tmp_path}/*.x", "--overwrite")
  assert "ValueError: No file matches what is asked for" in done.err
  done = command("csv", *flags, "--revision=main", "--overwrite")
  assert "'csv' is not on the hub and has no revisions." in done.err


@pytest.mark.parametrize(
  ("name", "said"),
  [
    ("saved/state.json", "was written by save_to_disk. Its .arrow files are"),
    (
      "a.jsonl",
      "is a file. Give it to offline_preparation, or name its reader",
    ),
  ],
)
def test_what_another_command_reads(command, tmp_path, name, said):
  path = tmp_path / name
  path.parent.mkdir(exist_ok=True)
  path.write_text("{}")
  dataset = path if name == "a.jsonl" else path.parent
  assert said in command.refused(dataset)


def test_a_tokenizer_comes_from_the_hub_too(hub, command, tmp_path):
  folder = save_word_tokenizer(tmp_path / "t", eos_token="<eos>")
  files = {path.name: path.read_bytes() for path in folder.iterdir()}
  hub.commit("org/words", files, kind="models")
  command.flags = (command.flags[0], "--tokenizer=org/words")
  assert command.tokens("org/two", "--dataset-subset=en") == [4, 0, 6, 6, 0]
  manifest = read_manifest(command.out / "x_text_document")
  assert manifest.tokenizer.name == "org/words"


def test_a_bad_tokenizer_is_told_before_the_download(hub, command):
  command.flags = (command.flags[0], "--tokenizer=./none")
  hub.forget()
  assert "The tokenizer folder './none' does not exist" in (
    command.refused("org/two", "--dataset-subset=en")
  )
  assert hub.downloads() == []


def test_an_output_that_is_there_is_told_before_the_download(hub, command):
  command.out.mkdir()
  (command.out / "x_text_document.bin").write_bytes(b"mine")
  hub.forget()
  done = command("org/two", "--dataset-subset=en")
  assert "FileExistsError: The output exists" in done.err
  assert hub.requests == []


def test_progress_is_a_line_for_an_interval_of_rows(hub, command):
  hub.commit("org/log", {"train.jsonl": lines(*["a"] * 3000)})
  done = command("org/log", "--log-interval=500")
  assert "writing JSON Lines: 1,000 documents, 33%" in done.err
  quiet = command("org/log", "--log-interval=0", "--overwrite")
  assert "documents" not in quiet.err
  assert "%|" not in done.err + quiet.err


def test_the_folder_by_default_is_beside_the_output(tmp_path):
  assert download_folder(None, f"{tmp_path}/x") == tmp_path / (
    "huggingface_jsonl"
  )
  assert download_folder(str(tmp_path), "x") == tmp_path
  with pytest.raises(ValueError, match="has to be local"):
    download_folder(None, "s3://bucket/x")
