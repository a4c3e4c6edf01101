// The part of the Python module for packing.

#include <algorithm>
#include <cstdint>
#include <utility>

#include "bindings.h"
#include "errors.h"
#include "numpy_arrays.h"
#include "open_file.h"
#include "pack.h"
#include "packed_fields.h"

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

void MakePackedFieldArrays(
    const Array<int64_t>& row_splits, const Array<int64_t>& start,
    const Array<int32_t>& length, const Array<int64_t>& id_begin,
    const Array<int64_t>& label_begin, const Array<int32_t>& ids,
    const Array<int32_t>& labels, const Array<float>& weights, int64_t begin,
    int64_t end, int64_t eod_id, bool reset_position_ids,
    bool reset_attention_mask, py::array input_ids, py::array out_labels,
    py::array position_ids, py::array segment_ids, py::array loss_mask) {
  const PackedInput input{Flat(row_splits, "row_splits"),
                          Flat(start, "start"),
                          Flat(length, "length"),
                          Flat(id_begin, "id_begin"),
                          Flat(label_begin, "label_begin"),
                          Flat(ids, "ids"),
                          Flat(labels, "labels"),
                          Flat(weights, "weights")};
  const int64_t rows = std::max<int64_t>(input.num_rows(), 0);
  if (begin < 0 || end < begin) {
    ThrowInvalid("the window [", begin, ", ", end,
                 ") is no range of positions.");
  }
  const int64_t width = end - begin;
  const FieldsOutput output{
      Output<int32_t>(input_ids, "input_ids", rows, width),
      Output<int32_t>(out_labels, "out_labels", rows, width),
      Output<int32_t>(position_ids, "position_ids", rows, width),
      Output<int32_t>(segment_ids, "segment_ids", rows, width),
      Output<float>(loss_mask, "loss_mask", rows, width)};
  const Unlocked unlocked;
  MakePackedFields(
      input, {begin, end, eod_id, reset_position_ids, reset_attention_mask},
      output);
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
  m.def("make_packed_fields", &MakePackedFieldArrays, arg("row_splits"),
        arg("start"), arg("length"), arg("id_begin"), arg("label_begin"),
        arg("ids"), arg("labels"), arg("weights"), arg("begin"), arg("end"),
        arg("eod_id"), arg("reset_position_ids"),
        arg("reset_attention_mask"), arg("input_ids"), arg("out_labels"),
        arg("position_ids"), arg("segment_ids"), arg("loss_mask"),
        "Fills the first rows of the five fields, each [rows, end - begin].");
}

}  // namespace hpgrain
