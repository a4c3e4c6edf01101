// The part of the Python module for Megatron's order: its shuffle, its sample
// index and the plans of its samples.

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "bindings.h"
#include "errors.h"
#include "int_array.h"
#include "legacy_shuffle.h"
#include "megatron_rows.h"
#include "mt19937.h"
#include "numpy_arrays.h"
#include "open_file.h"
#include "sample_walk.h"

namespace py = pybind11;

namespace hpgrain {
namespace {

std::optional<IntKind> KindOf(const py::array& array) {
  if (HoldsType<int32_t>(array)) return IntKind::kInt32;
  if (HoldsType<uint32_t>(array)) return IntKind::kUint32;
  if (HoldsType<int64_t>(array)) return IntKind::kInt64;
  return std::nullopt;
}

// An array as it lies: an index is too large to be converted on the way, and
// a mapped one may lie at any address.
IntArray Integers(const py::array& array, const char* name, int64_t ndim,
                  IntKind narrow) {
  const auto kind = KindOf(array);
  if (!kind || (*kind != narrow && *kind != IntKind::kInt64) ||
      array.ndim() != ndim || (array.flags() & py::array::c_style) == 0) {
    ThrowInvalid(name, " must be a C-contiguous array of ",
                 narrow == IntKind::kInt32 ? "int32" : "uint32",
                 " or int64 with ", ndim,
                 ndim == 1 ? " dimension" : " dimensions", ", got ",
                 std::string(py::str(py::object(array.dtype()))), " with ",
                 array.ndim(), "; convert it with numpy.ascontiguousarray.");
  }
  return {static_cast<const uint8_t*>(array.data()), array.size(), *kind};
}

int64_t ShuffleArray(py::array array, py::array key, int64_t position) {
  if (array.ndim() != 1 || (array.flags() & py::array::c_style) == 0 ||
      !array.writeable()) {
    ThrowInvalid("array must have one dimension, C-contiguous and writeable; "
                 "got ", array.ndim(), " dimensions",
                 array.writeable() ? "" : ", read-only",
                 "; shuffle a copy of it.");
  }
  if (array.dtype().kind() == 'O') {
    ThrowInvalid("array holds Python objects; only plain items are shuffled, "
                 "of 1, 2, 4 or 8 bytes.");
  }
  if (!HoldsType<uint32_t>(key) || key.ndim() != 1 ||
      (key.flags() & kPlainArray) != kPlainArray || !key.writeable()) {
    ThrowInvalid("key must be a writeable array of one dimension and uint32, "
                 "as RandomState.get_state() gives it; it is written back.");
  }
  auto* const words = static_cast<uint32_t*>(key.mutable_data());
  auto* const items = static_cast<uint8_t*>(array.mutable_data());
  const int64_t size = array.size();
  const int64_t item_size = array.itemsize();
  const int64_t num_words = key.size();
  const Unlocked unlocked;
  Mt19937 generator({words, num_words}, position);
  LegacyShuffle(items, size, item_size, &generator);
  std::copy_n(generator.key(), Mt19937::kWords, words);
  return generator.position();
}

template <typename Out>
py::array MakeSamples(const SampleWalkConfig& config) {
  py::array_t<Out> out({static_cast<py::ssize_t>(config.num_samples + 1),
                        py::ssize_t{2}});
  Out* const to = out.mutable_data();
  const Unlocked unlocked;
  WalkSamples<Out>(config, to);
  return std::move(out);
}

py::array SampleIndexArray(const py::array& lengths,
                           const py::array& document_index,
                           int64_t seq_length, int64_t extra,
                           int64_t num_samples) {
  const SampleWalkConfig config{
      Integers(lengths, "lengths", 1, IntKind::kInt32),
      Integers(document_index, "document_index", 1, IntKind::kInt32),
      seq_length, extra, num_samples};
  bool wide = false;
  {
    const Unlocked unlocked;
    wide = CheckSampleWalk(config);
  }
  return wide ? MakeSamples<int64_t>(config) : MakeSamples<int32_t>(config);
}

py::tuple PlanArrays(const std::shared_ptr<OpenFile>& file,
                     const Array<int64_t>& rows, int32_t source,
                     const py::array& document_index,
                     const py::array& sample_index,
                     const std::optional<py::array>& shuffle_index,
                     int64_t seq_length, int64_t extra) {
  if (file == nullptr) ThrowInvalid("file is None.");
  const auto in = Flat(rows, "rows");
  MegatronRows index;
  index.document_index =
      Integers(document_index, "document_index", 1, IntKind::kInt32);
  index.sample_index =
      Integers(sample_index, "sample_index", 2, IntKind::kInt32);
  if (sample_index.shape(1) != 2) {
    ThrowInvalid("sample_index must have the shape [samples + 1, 2], got ",
                 sample_index.shape(1), " columns.");
  }
  if (shuffle_index) {
    index.shuffled = true;
    index.shuffle_index =
        Integers(*shuffle_index, "shuffle_index", 1, IntKind::kUint32);
  }
  index.seq_length = seq_length;
  index.extra = extra;
  RowPlans plans;
  {
    const Unlocked unlocked;
    plans = PlanSamples(file->file, index, in, source);
  }
  return ToTuple(std::move(plans));
}

}  // namespace

void BindMegatron(py::module_& m) {
  using py::arg;
  m.def("shuffle", &ShuffleArray, arg("array").noconvert(),
        arg("key").noconvert(), arg("position"),
        "RandomState.shuffle in place; the new position, the key written.");
  m.def("sample_index", &SampleIndexArray, arg("lengths"),
        arg("document_index"), arg("seq_length"), arg("extra"),
        arg("num_samples"),
        "(place in document_index, offset) of each sample, and of the end.");
  m.def("plan_samples", &PlanArrays, arg("file"), arg("rows"), arg("source"),
        arg("document_index"), arg("sample_index"), arg("shuffle_index"),
        arg("seq_length"), arg("extra"),
        "The arrays of records.RowPlans for rows of Megatron's order.");
}

}  // namespace hpgrain
