"""A text in, its sentences out, by NLTK's Punkt models."""

import itertools
from collections.abc import Callable

from hpgrain.tools.request import Sentences

Splitter = Callable[[str], list[str]]


def sentence_splitter(sentences: Sentences) -> Splitter:
  """Loads the model of a language.

  Raises:
    ValueError: NLTK or the model's data is missing; says what to get.
  """
  try:
    import nltk
  except ImportError:
    raise ValueError(
      "--split-sentences needs the package nltk. Install it (pip install"
      " 'hpgrain[sentences]')."
    ) from None
  try:
    model = nltk.tokenize.PunktTokenizer(sentences.lang)
  except LookupError:
    raise ValueError(
      f"NLTK has no Punkt model of the language {sentences.lang!r} here. Get"
      " the data once (python -m nltk.downloader punkt_tab), name the folder"
      " that holds it in NLTK_DATA, or choose the language with --lang."
    ) from None
  if not sentences.keep_newlines:
    return model.tokenize

  def split(text: str) -> list[str]:
    # A sentence takes what stands behind it, up to the next one.
    begins = [begin for begin, _ in model.span_tokenize(text)][1:]
    cuts = [0, *begins, len(text)]
    return [text[a:b] for a, b in itertools.pairwise(cuts)]

  return split
