// The part of the Python module for Megatron's blend index.

#include <cstdint>
#include <limits>
#include <new>
#include <string>

#include "bindings.h"
#include "blend_index.h"
#include "isa.h"
#include "numpy_arrays.h"
#include "open_file.h"

namespace py = pybind11;

namespace hpgrain {
namespace {

// A result of `size` rows. NumPy has a ValueError of its own for more bytes
// than an address can tell; that much memory is simply not there.
template <typename T>
py::array_t<T> Allocate(int64_t size) {
  constexpr int64_t kMaxBytes = std::numeric_limits<int64_t>::max();
  if (size > kMaxBytes / static_cast<int64_t>(sizeof(T))) {
    throw std::bad_alloc();
  }
  return py::array_t<T>(size);
}

// Calls fill(isa, rows) on new arrays; ids are as narrow as they can be.
template <typename Id, typename Fill>
py::tuple Filled(int64_t size, const Fill& fill) {
  const Isa isa = CurrentIsa();
  auto sample = Allocate<int64_t>(size);
  auto source = Allocate<Id>(size);
  const BlendRows<Id> rows = {source.mutable_data(), sample.mutable_data()};
  {
    const Unlocked unlocked;
    fill(isa, rows);
  }
  return py::make_tuple(source, sample);
}

template <typename Fill>
py::tuple FilledFor(int64_t num_sources, int64_t size, const Fill& fill) {
  return num_sources <= kMaxSources16 ? Filled<int16_t>(size, fill)
                                      : Filled<int32_t>(size, fill);
}

py::tuple BlendIndexArrays(const Array<double>& weights, int64_t size) {
  const auto in = Flat(weights, "weights");
  CheckBlendWeights(in, size);
  return FilledFor(in.size, size, [&](Isa isa, const auto& rows) {
    BlendIndex(in, size, isa, rows);
  });
}

py::tuple ExhaustiveBlendIndexArrays(const Array<int64_t>& sizes) {
  const auto in = Flat(sizes, "sizes");
  const int64_t total = CheckBlendSizes(in);
  return FilledFor(in.size, total, [&](Isa isa, const auto& rows) {
    ExhaustiveBlendIndex(in, isa, rows);
  });
}

}  // namespace

void BindBlendIndex(py::module_& m) {
  using py::arg;
  m.def("isa", [] { return std::string(IsaName(CurrentIsa())); },
        "The instruction set that kernels written for several use.");
  m.def("blend_index", &BlendIndexArrays, arg("weights"), arg("size"),
        "(source, sample) at each position of Megatron's blend.");
  m.def("exhaustive_blend_index", &ExhaustiveBlendIndexArrays, arg("sizes"),
        "(source, sample) of a blend that has each row once.");
}

}  // namespace hpgrain
