// The part of the Python module for raw text and what a tokenizer makes of it.

#include <pybind11/stl.h>

#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bindings.h"
#include "json_texts.h"
#include "numpy_arrays.h"
#include "open_file.h"
#include "token_texts.h"

namespace py = pybind11;

namespace hpgrain {
namespace {

// A view of bytes, bytearray, memoryview, mmap or an array; none is copied.
class BytesView {
 public:
  explicit BytesView(const py::buffer& buffer) : info_(buffer.request()) {
    if (info_.ndim != 1 || info_.itemsize != 1 ||
        (info_.size > 1 && info_.strides[0] != 1)) {
      ThrowInvalid("data must be bytes without gaps, of one dimension.");
    }
  }

  Span<const uint8_t> Get() const {
    return {static_cast<const uint8_t*>(info_.ptr), info_.size};
  }

 private:
  py::buffer_info info_;
};

py::array_t<uint8_t> BytesArray(ByteBuffer&& buffer) {
  const int64_t size = buffer.size;
  const uint8_t* const data = buffer.bytes.get();
  const py::capsule owner(data, [](void* p) {
    delete[] static_cast<uint8_t*>(p);
  });
  buffer.bytes.release();
  return py::array_t<uint8_t>(size, data, owner);
}

py::tuple JsonTextArrays(const py::buffer& block,
                         const std::vector<std::string>& keys) {
  const BytesView view(block);
  JsonTexts read;
  {
    const Unlocked unlocked;
    read = ReadJsonTexts(view.Get(), keys);
  }
  py::list columns;
  for (size_t k = 0; k < keys.size(); ++k) {
    columns.append(
        py::make_tuple(BytesArray(std::move(read.texts[k])),
                       ToArray<int64_t>(std::move(read.splits[k]))));
  }
  return py::make_tuple(ToArray<int64_t>(std::move(read.starts)),
                        ToArray<int64_t>(std::move(read.stops)),
                        ToArray<bool>(std::move(read.found)), columns);
}

py::array_t<uint8_t> TextFlagsArray(const Array<uint8_t>& data,
                                    const Array<int64_t>& splits,
                                    const Array<uint8_t>& table) {
  const auto in = Flat(data, "data");
  const auto bounds = Flat(splits, "splits");
  const auto flags_of = Flat(table, "table");
  const int64_t count = bounds.size > 0 ? bounds.size - 1 : 0;
  py::array_t<uint8_t> flags(count);
  const Span<uint8_t> out = {flags.mutable_data(), count};
  {
    const Unlocked unlocked;
    TextFlags(in, bounds, flags_of, out);
  }
  return flags;
}

template <typename T>
py::tuple Stored(Span<const uint32_t> ids, Span<const int64_t> splits,
                 const StoredIds& rule) {
  const int64_t size = CountStored(ids, splits, rule);
  py::array_t<T> out(size);
  py::array_t<int64_t> lengths(splits.size - 1);
  py::array_t<bool> special(splits.size - 1);
  T* const to = out.mutable_data();
  int64_t* const counts = lengths.mutable_data();
  bool* const flags = special.mutable_data();
  {
    const Unlocked unlocked;
    StoreIds<T>(ids, splits, rule, to, counts, flags);
  }
  return py::make_tuple(out, lengths, special);
}

py::tuple StoreIdArrays(const Array<uint32_t>& ids,
                        const Array<int64_t>& splits,
                        const Array<uint32_t>& special, int64_t vocab_size,
                        int64_t eod_id, int64_t item_size) {
  const auto in = Flat(ids, "ids");
  const auto bounds = Flat(splits, "splits");
  const StoredIds rule = {Flat(special, "special"), vocab_size, eod_id};
  const int64_t room = item_size == 2
                           ? std::numeric_limits<uint16_t>::max()
                           : std::numeric_limits<int32_t>::max();
  if (item_size != 2 && item_size != 4) {
    ThrowInvalid("item_size must be 2 or 4, got ", item_size, ".");
  }
  if (vocab_size < 0 || vocab_size > room + 1) {
    ThrowInvalid("vocab_size must be 0 to ", room + 1, " for ids of ",
                 item_size, " bytes, got ", vocab_size, ".");
  }
  return item_size == 2 ? Stored<uint16_t>(in, bounds, rule)
                        : Stored<int32_t>(in, bounds, rule);
}

}  // namespace

void BindTexts(py::module_& m) {
  using py::arg;
  m.def("json_texts", &JsonTextArrays, arg("block"), arg("keys"),
        "(starts, stops, found, [(text, splits) of each key]) of lines.");
  m.def("text_flags", &TextFlagsArray, arg("data"), arg("splits"),
        arg("table"), "The flags of the characters of each text.");
  m.def("store_ids", &StoreIdArrays, arg("ids"), arg("splits"),
        arg("special"), arg("vocab_size"), arg("eod_id"), arg("item_size"),
        "(ids as stored, lengths, whether special) of each text.");
}

}  // namespace hpgrain
