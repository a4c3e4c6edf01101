"""Lets each test run with and without the packages that are only faster."""

import pytest

from hpgrain.tools.readers import compression, json_texts


@pytest.fixture(params=["orjson", "stdlib"])
def any_json(request, monkeypatch):
  if request.param == "stdlib":
    monkeypatch.setattr(json_texts, "_orjson_loads", lambda: None)
  else:
    pytest.importorskip("orjson")
  return request.param


@pytest.fixture(params=["isal", "stdlib"])
def any_gzip(request, monkeypatch):
  if request.param == "stdlib":
    monkeypatch.setattr(compression, "_igzip", lambda: None)
  else:
    pytest.importorskip("isal")
  return request.param
