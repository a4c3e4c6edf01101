"""Documents of Python source in, questions and conversations about them out.

  "def rmtree(..): '''Delete a tree.'''"
     {"path": .., "question": "What does rmtree do?", "answer": "Delete .."}
     {"messages": [system, user, assistant, user, assistant, ...]}

Docstrings are the answers: they are real text, and every Python has them.
"""

import ast
import itertools
import warnings
from collections.abc import Iterable, Iterator
from typing import Any

from hpgrain.tools.example_text import Document

_TURNS = 4
# Of question and answer together: a byte-level tokenizer gives no more ids.
LONGEST_BYTES = 250
_NAMED = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def make_questions(documents: Iterable[Document]) -> Iterator[dict[str, str]]:
  """Yields records with `path`, `question` and `answer`.

  Args:
    documents: (path, text) each; text that is no Python gives none.
  """
  for path, text in documents:
    try:
      with warnings.catch_warnings():
        # Old escapes in strings are none of ours.
        warnings.simplefilter("ignore")
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
      continue
    for question, node in _asked(path, tree):
      docstring = ast.get_docstring(node) or ""
      answer = docstring.split("\n\n")[0].strip()
      # Half of a surrogate pair, as an escape in a docstring, is no text.
      said = (question + answer).encode(errors="ignore")
      if (
        answer
        and len(said) <= LONGEST_BYTES
        and said.decode() == (question + answer)
      ):
        yield {"path": path, "question": question, "answer": answer}


def make_chats(questions: Iterable[dict[str, str]]) -> Iterator[dict[str, Any]]:
  """Yields records with `messages`, of up to four questions to a file."""
  for path, asked in itertools.groupby(questions, lambda q: q["path"]):
    prompt = f"You explain {path} of the Python standard library."
    while group := list(itertools.islice(asked, _TURNS)):
      messages = [_message("system", prompt)]
      for question in group:
        messages.append(_message("user", question["question"]))
        messages.append(_message("assistant", question["answer"]))
      yield {"messages": messages}


def _asked(path: str, tree: ast.Module) -> Iterator[tuple[str, Any]]:
  yield f"What is {path} for?", tree
  for node in _named(tree.body):
    if isinstance(node, ast.ClassDef):
      yield f"What is {node.name}?", node
    else:
      yield f"What does {node.name} do?", node


def _named(body: Iterable[ast.stmt]) -> Iterator[Any]:
  """Classes and functions, and those in classes; no others are looked for."""
  for node in body:
    if isinstance(node, _NAMED):
      yield node
      if isinstance(node, ast.ClassDef):
        yield from _named(node.body)


def _message(role: str, content: str) -> dict[str, str]:
  return {"role": role, "content": content}
