"""Rows tokenized while training are a function of data, config and seed alone.

Hypothesis draws what decides the rows (`Recipe`) and what must not (`Leg`),
and every field of every row is compared with the slow reference's.
"""

import tempfile
from pathlib import Path

import hypothesis
import pytest
from hypothesis import given, reject
from online_cases import build_cases, cases
from online_recipes import NoRows
from promise_build import check_build
from promise_online import check


def check_case(case):
  recipe, chosen = case
  with tempfile.TemporaryDirectory() as folder:
    try:
      check(recipe, chosen, Path(folder))
    except NoRows:
      reject()


def check_build_case(case):
  with tempfile.TemporaryDirectory() as folder:
    try:
      check_build(*case, Path(folder))
    except NoRows:
      reject()


def prove(examples, strategy, check_one):
  scale = hypothesis.settings.default.max_examples / 15
  count = hypothesis.settings(max_examples=max(1, int(examples * scale)))
  count(given(strategy)(check_one))()


def test_rows_of_plans_are_the_reference_s():
  prove(35, cases(mode="plans"), check_case)


def test_rows_of_streams_are_the_reference_s():
  prove(35, cases(mode="streams"), check_case)


@pytest.mark.parametrize("mode", ["plans", "streams"])
def test_batches_of_a_configuration_are_the_reference_s(mode):
  prove(15, build_cases(mode=mode), check_build_case)
