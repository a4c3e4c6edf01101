import json
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from helpers_tokenizer import read_pair

from hpgrain.manifest import read_manifest
from hpgrain.tokenizer import load_tokenizer, tokenizer_info
from hpgrain.tools import embedded_example, example_text
from hpgrain.tools.embedded_example import prepare
from hpgrain.tools.example_chats import (
  LONGEST_BYTES,
  make_chats,
  make_questions,
)

MAX_BYTES = 200_000
_ROLES = ("user", "assistant")
PAIRS = ("library", "tests", "library_packed")
PRODUCTS = {
  "library.jsonl",
  "tests.jsonl",
  "questions.jsonl",
  "chats.jsonl",
  "tests_ids.jsonl",
  ".prepared.json",
  "tokenizer/tokenizer.json",
  "tokenizer/tokenizer_config.json",
  *(f"{name}_text_document.bin" for name in PAIRS),
  *(f"{name}_text_document.idx" for name in PAIRS),
  *(f"{name}_text_document.manifest.json" for name in PAIRS),
}


def contents(folder):
  """Bytes of every file; manifests without the paths that they name."""
  found = {}
  for path in Path(folder).rglob("*"):
    if path.is_file() and path.name != ".lock":
      name = path.relative_to(folder).as_posix()
      found[name] = path.read_bytes().replace(str(folder).encode(), b"")
  return found


def start(folder):
  code = (
    "import sys; from hpgrain.tools.embedded_example import prepare;"
    f"prepare(sys.argv[1], max_bytes={MAX_BYTES})"
  )
  return subprocess.Popen(
    [sys.executable, "-c", code, str(folder)],
    stderr=subprocess.PIPE,
    text=True,
  )


@pytest.fixture(scope="module")
def example(tmp_path_factory):
  folder = tmp_path_factory.mktemp("example")
  prepare(str(folder), max_bytes=MAX_BYTES)
  return folder


@pytest.fixture(scope="module")
def expected(example):
  return contents(example)


def documents(folder, name):
  lines = (folder / f"{name}.jsonl").read_bytes().splitlines()
  return [json.loads(line) for line in lines]


def test_everything_promised_is_there(expected):
  assert set(expected) == PRODUCTS


@pytest.mark.parametrize("name", ["library", "tests"])
def test_pairs_hold_the_documents(example, name):
  tokenizer = load_tokenizer(example / "tokenizer")
  eod = tokenizer.convert_tokens_to_ids("<|endoftext|>")
  ids = [
    tokenizer(record["text"], add_special_tokens=False)["input_ids"]
    for record in documents(example, name)
  ]
  _, tokens, lengths, _ = read_pair(example / f"{name}_text_document")
  assert lengths == [len(document) + 1 for document in ids if document]
  assert tokens == [t for d in ids if d for t in [*d, eod]]
  manifest = read_manifest(example / f"{name}_text_document")
  assert manifest.tokenizer == tokenizer_info(tokenizer)
  assert manifest.documents == len(ids)


def test_packed_pair_holds_records_of_257(example):
  whole = read_pair(example / "library_text_document")[1]
  _, tokens, lengths, _ = read_pair(example / "library_packed_text_document")
  assert len(lengths) == len(whole) // 257 > 10
  assert set(lengths) == {257}
  assert tokens == whole[: len(tokens)]


def test_token_ids_are_those_of_the_pair(example):
  _, tokens, lengths, _ = read_pair(example / "tests_text_document")
  records = documents(example, "tests_ids")
  assert [len(record["input_ids"]) for record in records] == lengths
  assert [t for record in records for t in record["input_ids"]] == tokens


def test_questions_are_names_and_docstrings():
  text = (
    '"""Copies trees.\n\nMore."""\n'
    "class A:\n"
    '  """An A."""\n'
    "  def f(self):\n"
    f'    """{"x" * (LONGEST_BYTES - len("What does f do?") + 1)}"""\n'
    "def g():\n"
    '  """Does.\n\n  Well."""\n'
    "def h(): pass\n"
    "def s():\n"
    '  """   """\n'
    'def t():\n  """A half: \\ud800."""\n'
    'async def i():\n  """Waits."""\n'
    'def j():\n  """Last."""\n'
  )
  questions = list(
    make_questions([("a.py", text), ("b.py", "no (python"), ("c.py", "x = 1")])
  )
  asked = [
    ("What is a.py for?", "Copies trees."),
    ("What is A?", "An A."),
    ("What does g do?", "Does."),
    ("What does i do?", "Waits."),
    ("What does j do?", "Last."),
  ]
  assert questions == [
    {"path": "a.py", "question": question, "answer": answer}
    for question, answer in asked
  ]
  other = {"path": "d.py", "question": "What?", "answer": "That."}
  chats = list(make_chats([*questions, other]))
  assert [
    [(message["role"], message["content"]) for message in chat["messages"]]
    for chat in chats
  ] == [
    [
      ("system", "You explain a.py of the Python standard library."),
      *((role, text) for turn in asked[:4] for role, text in zip(_ROLES, turn)),
    ],
    [
      ("system", "You explain a.py of the Python standard library."),
      *zip(_ROLES, asked[4]),
    ],
    [
      ("system", "You explain d.py of the Python standard library."),
      *zip(_ROLES, ("What?", "That.")),
    ],
  ]


def test_questions_are_short(example):
  tokenizer = load_tokenizer(example / "tokenizer")
  records = documents(example, "questions")
  longest = max(records, key=lambda r: len(r["question"] + r["answer"]))
  text = f"{longest['question']}\n{longest['answer']}"
  # With the EOS they fit into 256 positions.
  assert len(tokenizer(text)["input_ids"]) <= 254


def test_there_are_chats(example):
  records = documents(example, "chats")
  assert len(records) > 10
  roles = [message["role"] for message in records[0]["messages"]]
  assert roles[:3] == ["system", "user", "assistant"]


def test_text_is_about_as_long_as_asked_and_split_by_test_folders(example):
  library, tests = (documents(example, name) for name in ("library", "tests"))
  sizes = [
    sum(len(record["text"].encode()) for record in records)
    for records in (library, tests)
  ]
  largest = 128 * 1024
  assert MAX_BYTES * 2 // 3 <= sizes[0] < MAX_BYTES * 2 // 3 + largest
  assert MAX_BYTES // 3 <= sizes[1] < MAX_BYTES // 3 + largest + 1
  folders = {"test", "tests", "idle_test"}
  assert all(folders & set(Path(r["path"]).parts) for r in tests)
  assert not any(folders & set(Path(r["path"]).parts) for r in library)


def test_tokenizer_gives_any_text_back(example):
  tokenizer = load_tokenizer(example / "tokenizer")
  text = " a\r\n\tnaïve 中文 🙂\x00"
  assert tokenizer.decode(tokenizer(text)["input_ids"]) == text
  assert tokenizer.eos_token == "<|endoftext|>"
  assert tokenizer_info(tokenizer).vocab_size <= 8192


@pytest.mark.parametrize("parallel", ["true", "false"])
def test_it_is_the_same_each_time(tmp_path, expected, monkeypatch, parallel):
  monkeypatch.setenv("TOKENIZERS_PARALLELISM", parallel)
  prepare(str(tmp_path / "new/folder"), max_bytes=MAX_BYTES)
  assert contents(tmp_path / "new/folder") == expected


def test_second_call_returns_at_once(example, expected, monkeypatch, capsys):
  monkeypatch.setattr(embedded_example, "_make", None)
  prepare(str(example), max_bytes=MAX_BYTES)
  assert contents(example) == expected
  assert capsys.readouterr().err == ""


def test_what_was_removed_is_made_again(tmp_path, example, expected, capsys):
  folder = shutil.copytree(example, tmp_path / "copy")
  (folder / "tests_text_document.idx").unlink()
  prepare(str(folder), max_bytes=MAX_BYTES)
  assert contents(folder) == expected
  said = capsys.readouterr().err.splitlines()
  assert said[0].startswith("example data:")
  assert said[-1].endswith("done")


def test_another_size_is_refused(example):
  with pytest.raises(ValueError, match=r"made from 200000 bytes.* 5 bytes"):
    prepare(str(example), max_bytes=5)
  with pytest.raises(ValueError, match="max_bytes must be positive, got 0"):
    prepare(str(example), max_bytes=0)


def test_processes_that_ask_at_once_do_the_work_once(tmp_path, expected):
  processes = [start(tmp_path / "x") for _ in range(3)]
  said = [process.communicate(timeout=120)[1] for process in processes]
  assert [process.returncode for process in processes] == [0, 0, 0], said
  assert sum("trained" in text for text in said) == 1, said
  assert contents(tmp_path / "x") == expected


def test_killed_runs_leave_nothing_half_and_the_next_goes_on(
  tmp_path, expected
):
  folder = tmp_path / "x"
  generator = random.Random(0)
  # After each of these lines, and a moment, the process is killed.
  for line in ("tests.jsonl", "trained", "library_text_document"):
    process = start(folder)
    for said in process.stderr:
      if line in said:
        break
    time.sleep(generator.random() * 0.1)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    assert not (folder / ".prepared.json").exists()
    found = contents(folder)
    for name in PRODUCTS & set(found):
      assert found[name] == expected[name]
  prepare(str(folder), max_bytes=MAX_BYTES)
  assert contents(folder) == expected


def write_tree(root, files):
  for name, content in files.items():
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
  return root


def split_names(split):
  return [
    sorted(name for name, _ in part) for part in (split.library, split.tests)
  ]


def test_only_source_text_outside_installed_packages_is_taken(tmp_path):
  tree = write_tree(
    tmp_path,
    {
      "a.py": b"a",
      "b/c.py": "é\r\n".encode(),
      "b/empty.py": b"",
      "test/t.py": b"t" * 50,
      "b/tests/u.py": b"u",
      "idlelib/idle_test/v.py": b"v",
      "latin.py": b"\xe9",
      "test/latin.py": b"\xff",
      "large.py": b"x" * (128 * 1024 + 1),
      "data.txt": b"no",
      "site-packages/p.py": b"p",
      "b/__pycache__/q.py": b"q",
    },
  )
  split = example_text.split_text(tree, max_bytes=200)
  assert split_names(split) == [
    ["a.py", "b/c.py", "b/empty.py"],
    ["b/tests/u.py", "idlelib/idle_test/v.py", "test/t.py"],
  ]
  assert dict(split.library)["b/c.py"] == "é\r\n"
  assert split.skipped == 2


def test_stripped_test_folders_are_made_up_for(tmp_path):
  files = {f"m{i}.py": b"x" * 100 for i in range(9)}
  tree = write_tree(tmp_path, {**files, "test/__init__.py": b""})
  split = example_text.split_text(tree, max_bytes=3000)
  library, tests = split_names(split)
  assert (len(library), len(tests)) == (6, 4)
  assert sorted(library + tests) == sorted([*files, "test/__init__.py"])


def test_reading_stops_where_the_bytes_are_reached(tmp_path):
  files = {f"m{i}.py": b"x" * 100 for i in range(20)}
  tests = {f"test/m{i}.py": b"y" * 100 for i in range(20)}
  tree = write_tree(tmp_path, {**files, **tests})
  split = example_text.split_text(tree, max_bytes=600)
  assert (len(split.library), len(split.tests)) == (4, 2)


def test_folder_without_source_text_is_refused(tmp_path):
  write_tree(tmp_path / "lib", {"a.txt": b"a"})
  with pytest.raises(ValueError, match="Found no source text"):
    prepare(str(tmp_path / "x"), stdlib=tmp_path / "lib")
  assert not (tmp_path / "x/.prepared.json").exists()


def test_command_line_says_where_it_is(tmp_path, monkeypatch, capsys):
  monkeypatch.setattr(embedded_example, "_make", lambda *_: None)
  assert embedded_example.main([f"--output-dir={tmp_path}"]) == 0
  assert str(tmp_path) in capsys.readouterr().out
  (tmp_path / "file").touch()
  assert embedded_example.main([f"--output-dir={tmp_path}/file"]) == 1
  assert "embedded_example: NotADirectoryError" in capsys.readouterr().err
