// A .idx/.bin pair in memory, its index arrays at odd addresses as in a file.

#ifndef HPGRAIN_TESTS_PAIR_H_
#define HPGRAIN_TESTS_PAIR_H_

#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "token_file.h"

namespace hpgrain {

// Owns exactly the bytes of an array, so that a sanitizer sees any overrun;
// the array begins one byte in.
class OddBytes {
 public:
  template <typename T>
  explicit OddBytes(const std::vector<T>& values)
      : bytes_(new uint8_t[1 + values.size() * sizeof(T)]) {
    if (!values.empty()) {
      std::memcpy(bytes_.get() + 1, values.data(), values.size() * sizeof(T));
    }
  }
  const uint8_t* data() const { return bytes_.get() + 1; }

 private:
  std::unique_ptr<uint8_t[]> bytes_;
};

// uint16 tokens 0, 1, 2, ... in sequences of the given lengths, each a
// document, back to back.
struct Pair {
  explicit Pair(const std::vector<int32_t>& sizes) : Pair(sizes, {}) {}

  // With other pointers than the lengths give, if any.
  Pair(const std::vector<int32_t>& sizes,
       const std::vector<int64_t>& other_pointers)
      : lengths(sizes),
        pointers(other_pointers.empty() ? Pointers(sizes) : other_pointers),
        documents(Documents(sizes)),
        tokens(Tokens(sizes)) {
    file.lengths = lengths.data();
    file.pointers = pointers.data();
    file.document_indices = documents.data();
    file.num_sequences = static_cast<int64_t>(sizes.size());
    file.num_document_indices = file.num_sequences + 1;
    file.dtype_code = 8;
    file.item_size = 2;
    file.tokens = tokens.data();
    file.num_bytes = static_cast<int64_t>(2 * Tokens(sizes).size());
  }

  static std::vector<int64_t> Pointers(const std::vector<int32_t>& sizes) {
    std::vector<int64_t> out;
    int64_t at = 0;
    for (const int32_t size : sizes) {
      out.push_back(at);
      at += 2 * int64_t{size};
    }
    return out;
  }
  static std::vector<int64_t> Documents(const std::vector<int32_t>& sizes) {
    std::vector<int64_t> out;
    for (size_t i = 0; i <= sizes.size(); ++i) {
      out.push_back(static_cast<int64_t>(i));
    }
    return out;
  }
  static std::vector<uint16_t> Tokens(const std::vector<int32_t>& sizes) {
    std::vector<uint16_t> out;
    for (const int32_t size : sizes) {
      for (int32_t i = 0; i < size; ++i) {
        out.push_back(static_cast<uint16_t>(out.size()));
      }
    }
    return out;
  }

  OddBytes lengths;
  OddBytes pointers;
  OddBytes documents;
  OddBytes tokens;
  TokenFile file;
};

}  // namespace hpgrain

#endif  // HPGRAIN_TESTS_PAIR_H_
