// The part of the Python module for packing.

#include <cstdint>
#include <utility>

#include "bindings.h"
#include "numpy_arrays.h"
#include "open_file.h"
#include "pack.h"

namespace py = pybind11;

namespace hpgrain {
namespace {

template <typename Pack>
py::tuple Packed(const Array<int32_t>& lengths, const Pack& pack) {
  const auto in = Flat(lengths, "lengths");
  PackedRows rows;
  {
    const Unlocked unlocked;
    rows = pack(in);
  }
  return py::make_tuple(ToArray<int64_t>(std::move(rows.row_splits)),
                        ToArray<int64_t>(std::move(rows.items)), rows.arrived);
}

py::tuple FirstFitArrays(const Array<int32_t>& lengths, int64_t budget,
                         int64_t max_items, int64_t min_buffered,
                         int64_t arrived, bool final) {
  return Packed(lengths, [&](Span<const int32_t> in) {
    return FirstFit(in, {budget, max_items}, min_buffered, arrived, final);
  });
}

py::tuple OldestBestFitArrays(const Array<int32_t>& lengths, int64_t budget,
                              int64_t max_items, int64_t window,
                              int64_t arrived, bool final) {
  return Packed(lengths, [&](Span<const int32_t> in) {
    return OldestBestFit(in, {budget, max_items}, window, arrived, final);
  });
}

py::tuple BestFitDecreasingArrays(const Array<int32_t>& lengths,
                                  int64_t budget, int64_t max_items) {
  return Packed(lengths, [&](Span<const int32_t> in) {
    return BestFitDecreasing(in, {budget, max_items});
  });
}

}  // namespace

void BindPack(py::module_& m) {
  using py::arg;
  m.def("first_fit", &FirstFitArrays, arg("lengths"), arg("budget"),
        arg("max_items"), arg("min_buffered"), arg("arrived"), arg("final"),
        "(row_splits, items, arrived) of rows that are filled in turn.");
  m.def("oldest_best_fit", &OldestBestFitArrays, arg("lengths"),
        arg("budget"), arg("max_items"), arg("window"), arg("arrived"),
        arg("final"),
        "(row_splits, items, arrived) of rows begun by the oldest example.");
  m.def("best_fit_decreasing", &BestFitDecreasingArrays, arg("lengths"),
        arg("budget"), arg("max_items"),
        "(row_splits, items, arrived) of rows filled from the longest on.");
}

}  // namespace hpgrain
