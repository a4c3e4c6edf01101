import pickle

import numpy as np
import pytest
from corpora import write_pair
from hypothesis import given
from hypothesis import strategies as st

from hpgrain import PrecutSamples
from hpgrain.buckets import Buckets
from hpgrain.order import bucket_key, permutation_key, permute


def _one(row, *, num_rows, num_buckets, seed, name):
  """(epoch, place) of one row, as the definition reads."""
  size = num_rows // num_buckets
  epoch, row = divmod(row, size * num_buckets)
  bucket, k = row % num_buckets, row // num_buckets
  key = bucket_key(seed, name, epoch, bucket)
  return epoch, bucket * size + permute(k, size, key=key)


def test_the_keys_are_fixed_for_ever():
  # BLAKE2b of `[0,"a",0,0]` and so on; an epoch's bucket is no epoch.
  assert bucket_key(0, "a", 0, 0).hex() == "3481136bb87d31a79bf11fb35eb2c204"
  assert (
    bucket_key(1234, "données", 7, 3).hex()
    == "10d14d98e21fa60a70b8ade7ed899b8f"
  )
  assert bucket_key(0, "a", 0, 0) != permutation_key(0, "a", 0)
  with pytest.raises(ValueError, match=r"bucket must be an integer, got 1\.5"):
    bucket_key(0, "a", 0, 1.5)


def test_rows_take_the_buckets_in_turn():
  buckets = Buckets(11, 3, seed=5, name="a")
  assert (buckets.num_buckets, buckets.bucket_rows) == (3, 3)
  assert (buckets.rows_per_epoch, buckets.left) == (9, 2)
  epoch, place = buckets.map(range(18))
  assert epoch.tolist() == [0] * 9 + [1] * 9
  assert (place // 3).tolist() == [0, 1, 2] * 6
  assert sorted(place[:9]) == sorted(place[9:]) == list(range(9))
  assert place.tolist() == [
    2,
    5,
    6,
    1,
    3,
    7,
    0,
    4,
    8,
    1,
    3,
    8,
    2,
    4,
    6,
    0,
    5,
    7,
  ]
  assert place[:9].tolist() != place[9:].tolist()


@given(st.integers(1, 40), st.integers(1, 40), st.integers(0, 3), st.data())
def test_every_row_is_the_definitions(num_rows, num_buckets, seed, data):
  num_buckets = min(num_buckets, num_rows)
  source = {"num_rows": num_rows, "num_buckets": num_buckets}
  source |= {"seed": seed, "name": "é"}
  buckets = Buckets(num_rows, num_buckets, seed=seed, name="é")
  far = st.integers(0, 1 << 62)
  rows = data.draw(st.lists(st.integers(0, 200) | far, max_size=12))
  epoch, place = buckets.map(np.array(rows, np.int64))
  assert epoch.dtype == place.dtype == np.int64
  expected = [_one(row, **source) for row in rows]
  assert list(zip(epoch.tolist(), place.tolist())) == expected


def test_each_epoch_reads_every_row_that_is_not_left():
  buckets = Buckets(103, 4, seed=0, name="a")
  for e in range(3):
    epoch, place = buckets.map(np.arange(100) + 100 * e)
    assert (epoch == e).all()
    assert sorted(place.tolist()) == list(range(100))


def test_the_order_depends_on_seed_name_epoch_and_bucket():
  def order(seed, name, rows):
    return Buckets(100, 2, seed=seed, name=name).map(rows)[1].tolist()

  first = order(0, "a", range(0, 100, 2))
  assert first != order(1, "a", range(0, 100, 2))
  assert first != order(0, "b", range(0, 100, 2))
  assert first != order(0, "a", range(100, 200, 2))
  assert first != [p - 50 for p in order(0, "a", range(1, 100, 2))]


def test_no_rows_have_no_places():
  epoch, place = Buckets(5, 2, seed=0, name="a").map([])
  assert len(epoch) == len(place) == 0


def test_one_bucket_a_row_leaves_rows_in_order():
  assert Buckets(4, 4, seed=0, name="a").map(range(8))[1].tolist() == [
    *range(4),
    *range(4),
  ]


def test_copies_order_rows_alike():
  buckets = Buckets(50, 3, seed=1, name="a")
  copy = pickle.loads(pickle.dumps(buckets))
  assert copy.map(range(99))[1].tolist() == buckets.map(range(99))[1].tolist()


def test_illegal_arguments_are_refused():
  with pytest.raises(
    ValueError,
    match="Source 'books': 3 rows an epoch are too few for data_sharding=4",
  ):
    Buckets(3, 4, seed=0, name="books")
  with pytest.raises(
    ValueError, match="data_sharding must be at least 1, got 0"
  ):
    Buckets(3, 0, seed=0, name="a")
  with pytest.raises(ValueError, match=r"seed must be an integer, got 0\.5"):
    Buckets(3, 1, seed=0.5, name="a")
  with pytest.raises(IndexError, match="got row -1"):
    Buckets(3, 1, seed=0, name="a").map([0, -1])


def test_records_are_read_in_buckets(tmp_path):
  prefix = write_pair(tmp_path / "a", [[[10 + i, 1]] for i in range(14)])
  options = {"seq_length": 1, "seed": 5, "split": "3,11,0", "split_index": 1}
  samples = PrecutSamples(prefix, **options, data_sharding=3)
  buckets = Buckets(11, 3, seed=5, name="a")
  assert len(samples) == samples.rows_per_epoch == 9
  assert samples.num_rows(2) == 18
  assert samples.buckets.left == 2
  plans = samples.plan_rows(range(18))
  _, place = buckets.map(range(18))
  assert plans.sequence.tolist() == (place + 3).tolist()
  assert samples.read(plans)[:, 0].tolist() == (place + 13).tolist()
  # Only where it is set, so that other fingerprints stay what they were.
  plain = PrecutSamples(prefix, **options).settings
  assert "data_sharding" not in plain
  assert samples.settings == {**plain, "data_sharding": 3}


def test_buckets_that_records_cannot_fill_are_refused(tmp_path):
  prefix = write_pair(tmp_path / "a", [[[1, 2]]] * 3)

  def opened(**options):
    return PrecutSamples(prefix, seq_length=1, seed=0, **options)

  with pytest.raises(ValueError, match="Source 'a': 3 rows an epoch"):
    opened(data_sharding=4)
  with pytest.raises(
    ValueError, match="data_sharding must be an integer, got True"
  ):
    opened(data_sharding=True)
  with pytest.raises(ValueError, match=r"data_sharding=2 .*shuffle=False"):
    opened(data_sharding=2, shuffle=False)
  # A split without records still says so itself.
  empty = opened(data_sharding=2, split="9,0.1,0", split_index=1)
  assert len(empty) == 0
  with pytest.raises(ValueError, match="holds none of its 3 records"):
    empty.plan(0)
