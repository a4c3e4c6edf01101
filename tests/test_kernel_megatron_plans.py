"""Plans of Megatron's samples against a slice of a list of all tokens."""




def assert_plans_equal(got, expected):
  names = ("row_splits", "source", "sequence", "offset", "length", "boundary")
  for name, a, b in zip(names, got, expected, strict=True):
    assert a.dtype == b.dtype, name
    assert a.tolist() == b.tolist(), name
