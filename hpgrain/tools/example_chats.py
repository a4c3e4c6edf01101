"""Documents of Python source in, conversations about them out.

  "def rmtree(..): '''Delete a tree.'''"   -> user       What does rmtree do?
                                              assistant  Delete a tree.

Docstrings are the answers: they are real text, and every Python has them.
"""

import ast
import itertools
import warnings
from collections.abc import Iterable, Iterator
from typing import Any

from hpgrain.tools.example_text import Document

_TURNS = 4
_LONGEST_ANSWER = 600
_NAMED = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def make_chats(documents: Iterable[Document]) -> Iterator[dict[str, Any]]:
  """Yields records with `messages`, of up to four questions each.

  Args:
    documents: (path, text) each; text that is no Python gives none.
  """
  for path, text in documents:
    asked = list(_questions(path, text))
    for begin in range(0, len(asked), _TURNS):
      prompt = f"You explain {path} of the Python standard library."
      turns = itertools.chain.from_iterable(
        (_message("user", question), _message("assistant", answer))
        for question, answer in asked[begin : begin + _TURNS]
      )
      yield {"messages": [_message("system", prompt), *turns]}


def _questions(path: str, text: str) -> Iterator[tuple[str, str]]:
  try:
    with warnings.catch_warnings():
      # Old escapes in strings are none of ours.
      warnings.simplefilter("ignore")
      tree = ast.parse(text)
  except (SyntaxError, ValueError):
    return
  if answer := _first_paragraph(tree):
    yield f"What is {path} for?", answer
  for node in _named(tree.body):
    if answer := _first_paragraph(node):
      is_class = isinstance(node, ast.ClassDef)
      question = "What is" if is_class else "What does"
      yield f"{question} {node.name}{'' if is_class else ' do'}?", answer


def _named(body: Iterable[ast.stmt]) -> Iterator[Any]:
  """Classes and functions, and those in classes; no others are looked for."""
  for node in body:
    if isinstance(node, _NAMED):
      yield node
      if isinstance(node, ast.ClassDef):
        yield from _named(node.body)


def _first_paragraph(node: Any) -> str:
  """A docstring's first paragraph; "" where there is none or it is long."""
  text = ast.get_docstring(node) or ""
  paragraph = text.split("\n\n")[0].strip()
  return paragraph if len(paragraph) <= _LONGEST_ANSWER else ""


def _message(role: str, content: str) -> dict[str, str]:
  return {"role": role, "content": content}
