// NumPy arrays as the kernels take and give them; for bindings.cc alone.

#ifndef HPGRAIN_NUMPY_ARRAYS_H_
#define HPGRAIN_NUMPY_ARRAYS_H_

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <cstdint>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include "errors.h"
#include "span.h"

namespace hpgrain {

constexpr int kPlainArray =
    pybind11::array::c_style | pybind11::detail::npy_api::NPY_ARRAY_ALIGNED_;

// Whether an array's elements are T in this machine's byte order.
template <typename T>
bool HoldsType(const pybind11::array& array) {
  const auto dtype = array.dtype();
  const char order = dtype.byteorder();
  return dtype.num() == pybind11::detail::npy_format_descriptor<T>::value &&
         (order == '=' || order == '|' || order == '<');
}

// An input: cast where that loses nothing, copied where it is not contiguous
// and aligned, else used as it lies.
template <typename T>
struct Array {
  pybind11::object owner;
  Span<const T> values;
  int64_t ndim = 0;
  int64_t rows = 0;     // where there is a first dimension
  int64_t columns = 0;  // where there is a second one

  // Returns whether `source` is such an array or could be made one.
  bool Load(pybind11::handle source) {
    // NumPy's conversion of one array takes as long as planning a row, so
    // that the usual case goes without.
    if (IsPlain(source)) {
      Hold(pybind11::reinterpret_borrow<pybind11::array>(source));
      return true;
    }
    auto made = pybind11::array_t<T, kPlainArray>::ensure(source);
    if (!made) return false;
    Hold(std::move(made));
    return true;
  }

 private:
  void Hold(pybind11::array array) {
    values = {static_cast<const T*>(array.data()), array.size()};
    ndim = array.ndim();
    if (ndim > 0) rows = array.shape(0);
    if (ndim > 1) columns = array.shape(1);
    owner = std::move(array);
  }

  static bool IsPlain(pybind11::handle source) {
    if (!pybind11::isinstance<pybind11::array>(source)) return false;
    const auto array = pybind11::reinterpret_borrow<pybind11::array>(source);
    return (array.flags() & kPlainArray) == kPlainArray && HoldsType<T>(array);
  }
};

// The values of an array of one dimension.
template <typename T>
Span<const T> Flat(const Array<T>& array, const char* name) {
  if (array.ndim != 1) {
    ThrowInvalid(name, " must have one dimension, got ", array.ndim, ".");
  }
  return array.values;
}

// The values of an array of shape [nodes, 2].
template <typename T>
Span<const T> Pairs(const Array<T>& array, const char* name) {
  if (array.ndim != 2 || array.columns != 2) {
    ThrowInvalid(name, " must have the shape [nodes, 2].");
  }
  return array.values;
}

inline Span<const uint8_t> Bytes(Span<const bool> flags) {
  return {reinterpret_cast<const uint8_t*>(flags.data), flags.size};
}

// A view of a mapped file: never copied, at any address. The span counts
// elements.
template <typename T>
Span<const uint8_t> Mapped(const pybind11::array& array, const char* name) {
  if (!HoldsType<T>(array) || array.ndim() != 1 ||
      (array.size() > 1 &&
       array.strides(0) != static_cast<pybind11::ssize_t>(sizeof(T)))) {
    ThrowInvalid(name, " must be a contiguous array of one dimension and ",
                 8 * sizeof(T), "-bit integers.");
  }
  return {static_cast<const uint8_t*>(array.data()), array.size()};
}

// An output: written in place, so it must be just what the kernel writes.
template <typename T>
Span<T> Output(pybind11::array& array, const char* name, int64_t rows,
               int64_t columns) {
  if (!HoldsType<T>(array) || array.ndim() != 2 || array.shape(0) < rows ||
      array.shape(1) != columns ||
      (array.flags() & kPlainArray) != kPlainArray || !array.writeable()) {
    ThrowInvalid(name, " must be a writeable, C-contiguous array of ",
                 std::is_integral_v<T> ? "int32" : "float32", " with ", rows,
                 " rows or more of ", columns, " columns.");
  }
  return {static_cast<T*>(array.mutable_data()), array.size()};
}

// Hands a kernel's result over: a small one is copied, which is cheaper than
// an owner for it, a large one is not.
template <typename To, typename From>
pybind11::array_t<To> ToArray(std::vector<From>&& values) {
  static_assert(sizeof(To) == sizeof(From));
  constexpr size_t kSmall = 4096;
  const auto size = static_cast<pybind11::ssize_t>(values.size());
  const To* const data = reinterpret_cast<const To*>(values.data());
  if (values.size() <= kSmall) return pybind11::array_t<To>(size, data);
  auto held = std::make_unique<std::vector<From>>(std::move(values));
  const pybind11::capsule owner(held.get(), [](void* p) {
    delete static_cast<std::vector<From>*>(p);
  });
  held.release();
  return pybind11::array_t<To>(size, data, owner);
}

}  // namespace hpgrain

template <typename T>
struct pybind11::detail::type_caster<hpgrain::Array<T>> {
  PYBIND11_TYPE_CASTER(hpgrain::Array<T>, const_name("numpy.ndarray"));

  bool load(handle source, bool) { return value.Load(source); }
};

#endif  // HPGRAIN_NUMPY_ARRAYS_H_
