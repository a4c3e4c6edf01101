"""Tokenizers and an object store that the tools' tests share."""

import itertools
import logging

import pytest
from helpers_tokenizer import save_bpe_tokenizer, save_word_tokenizer

from hpgrain.tokenizer import load_tokenizer


@pytest.fixture(scope="session")
def word_folder(tmp_path_factory):
  return save_word_tokenizer(
    tmp_path_factory.mktemp("words"), eos_token="<eos>", sep_token="<sep>"
  )


@pytest.fixture(scope="session")
def bpe_folder(tmp_path_factory):
  return save_bpe_tokenizer(tmp_path_factory.mktemp("bpe"))


@pytest.fixture
def words(word_folder):
  return load_tokenizer(word_folder)


@pytest.fixture
def bpe(bpe_folder):
  return load_tokenizer(bpe_folder)


@pytest.fixture
def punkt(tmp_path, monkeypatch):
  """A Punkt model trained here, where NLTK looks for its data."""
  nltk = pytest.importorskip("nltk")
  from nltk.tokenize import punkt

  trainer = punkt.PunktTrainer()
  # Each word stands within sentences and at their ends; "Mr" never at an end.
  words = "home slept up dog house river b d e went woke".split()
  sentences = [
    f"Mr. {name} saw the {a} and the {b} near the {c}."
    for name in ("Lee", "Kim", "Ito", "Roy")
    for a, b, c in itertools.permutations(words, 3)
  ]
  trainer.train(" ".join(sentences), finalize=True)
  folder = tmp_path / "nltk" / "tokenizers" / "punkt_tab" / "english"
  folder.mkdir(parents=True)
  # NLTK writes nowhere else either.
  monkeypatch.setattr(nltk.data, "path", [str(tmp_path / "nltk")])
  punkt.save_punkt_params(trainer.get_params(), dir=str(folder))


@pytest.fixture(scope="session")
def s3():
  """A store on this machine that speaks S3; yields fsspec's view of it."""
  pytest.importorskip("s3fs", reason="needs s3fs")
  moto = pytest.importorskip("moto.server", reason="needs moto[server]")
  import fsspec

  logging.getLogger("werkzeug").setLevel(logging.ERROR)
  server = moto.ThreadedMotoServer("127.0.0.1", 0, verbose=False)
  server.start()
  host, port = server.get_host_and_port()
  with pytest.MonkeyPatch.context() as patch:
    patch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
    patch.setenv("AWS_ACCESS_KEY_ID", "testing")
    patch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
    patch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    yield fsspec.filesystem("s3", use_listings_cache=False)
  server.stop()


_numbers = itertools.count()


@pytest.fixture
def bucket(s3):
  """The URL of an empty bucket."""
  # "-bucket" in the name: errors must not take it for what they say.
  name = f"a-bucket-{next(_numbers)}"
  s3.mkdir(name)
  return f"s3://{name}"
