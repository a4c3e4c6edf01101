"""Rows tokenized while training are a function of data, config and seed alone.

Hypothesis draws what decides the rows (`Recipe`) and what must not (`Leg`),
and every field of every row is compared with the slow reference's.
"""

import tempfile
from pathlib import Path

import hypothesis
from hypothesis import given, reject
from online_cases import cases
from online_recipes import NoRows
from promise_online import check


def check_case(case):
  recipe, chosen = case
  with tempfile.TemporaryDirectory() as folder:
    try:
      check(recipe, chosen, Path(folder))
    except NoRows:
      reject()


def prove(examples, **options):
  scale = hypothesis.settings.default.max_examples / 15
  count = hypothesis.settings(max_examples=max(1, int(examples * scale)))
  count(given(cases(**options))(check_case))()


def test_rows_of_plans_are_the_reference_s():
  prove(50, mode="plans")


def test_rows_of_streams_are_the_reference_s():
  prove(50, mode="streams")
