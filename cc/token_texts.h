// What stands before and behind a tokenizer: flags of texts that it is to be
// given, and its ids as they are stored.

#ifndef HPGRAIN_TOKEN_TEXTS_H_
#define HPGRAIN_TOKEN_TEXTS_H_

#include <cstdint>

#include "span.h"

namespace hpgrain {

constexpr int64_t kNumCodePoints = 0x110000;

// Sets flags[i] to all flags that characters beyond ASCII of text i have.
//
// Text i is data[splits[i], splits[i + 1]); `table` has a byte of flags for
// each code point. Throws invalid_argument where the splits do not divide the
// data, the table has another size, or a text is not UTF-8.
void TextFlags(Span<const uint8_t> data, Span<const int64_t> splits,
               Span<const uint8_t> table, Span<uint8_t> flags);

// How ids become what is stored.
struct StoredIds {
  Span<const uint32_t> special;  // ascending
  int64_t vocab_size = 0;
  int64_t eod_id = -1;  // put behind each text that has an id; -1: none
};

// Number of ids to be stored: those there are, and the EODs.
//
// Throws invalid_argument where splits [texts + 1] do not ascend within the
// ids, the special ids do not ascend, or the EOD is outside the vocabulary.
int64_t CountStored(Span<const uint32_t> ids, Span<const int64_t> splits,
                    const StoredIds& rule);

// Writes the ids from splits[0] to the last split as T, uint16_t or int32_t,
// into `out`, of `CountStored` places, each text's number of them into
// `lengths`, and whether one of its ids is special into `special`.
//
// Throws invalid_argument where an id is outside the vocabulary.
template <typename T>
void StoreIds(Span<const uint32_t> ids, Span<const int64_t> splits,
              const StoredIds& rule, T* out, int64_t* lengths, bool* special);

}  // namespace hpgrain

#endif  // HPGRAIN_TOKEN_TEXTS_H_
