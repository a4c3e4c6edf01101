// Lines of JSON objects in, the texts under some of their keys out.

#ifndef HPGRAIN_JSON_TEXTS_H_
#define HPGRAIN_JSON_TEXTS_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "span.h"

namespace hpgrain {

// Bytes that need not be filled with zeros first.
struct ByteBuffer {
  std::unique_ptr<uint8_t[]> bytes;
  int64_t size = 0;
};

// The records of a block of lines; a line of white space is none.
struct JsonTexts {
  std::vector<int64_t> starts;  // [records] of the line, in the block
  std::vector<int64_t> stops;   // [records], without the line's end
  // [records]: 1 where the texts were found. 0 says nothing but that the line
  // is for a parser to judge that tells what is wrong; it has empty texts.
  std::vector<uint8_t> found;
  std::vector<ByteBuffer> texts;              // [keys]: UTF-8, end to end
  std::vector<std::vector<int64_t>> splits;   // [keys][records + 1]
};

// Reads lines, each ended by '\n' or by the block's end.
//
// What is found is what Python's json.loads gives of the line, decoded as
// UTF-8: the last value of a key counts, and it is a string of Unicode. Of
// what that accepts, some is left to it: numbers of many digits, NaN and
// Infinity, deep nesting, keys that are written with escapes, and halves of
// surrogate pairs.
//
// Throws invalid_argument where there are no keys, or one is twice.
JsonTexts ReadJsonTexts(Span<const uint8_t> block,
                        const std::vector<std::string>& keys);

}  // namespace hpgrain

#endif  // HPGRAIN_JSON_TEXTS_H_
