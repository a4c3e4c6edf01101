#include "token_texts.h"

#include <algorithm>
#include <limits>

#include "errors.h"
#include "utf8.h"

namespace hpgrain {
namespace {

void CheckSplits(Span<const int64_t> splits, int64_t size, bool whole) {
  if (splits.size < 1) ThrowInvalid("splits must have a place, got none.");
  int64_t before = whole ? 0 : splits[0];
  if (splits[0] != before || before < 0) {
    ThrowInvalid("splits begin at ", splits[0], " instead of 0.");
  }
  for (const int64_t split : splits) {
    if (split < before || split > size) {
      ThrowInvalid("splits must ascend to at most ", size, ", got ", split,
                   " after ", before, ".");
    }
    before = split;
  }
  if (whole && before != size) {
    ThrowInvalid("splits end at ", before, ", but there are ", size,
                 " bytes.");
  }
}

uint8_t FlagsOf(const uint8_t* p, const uint8_t* end,
                Span<const uint8_t> table) {
  uint8_t flags = 0;
  while (p < end) {
    if (end - p >= 8) {
      const uint64_t high = LoadUnaligned<uint64_t>(p, 0) & kHighBits;
      if (high == 0) {
        p += 8;
        continue;
      }
      p += __builtin_ctzll(high) / 8;
    } else if (*p < 0x80) {
      ++p;
      continue;
    }
    // What is not ASCII mostly comes in runs.
    do {
      const CodePoint point = DecodeUtf8(p, end);
      if (point.length == 0) ThrowInvalid("a text is not UTF-8.");
      flags |= table[point.value];
      p += point.length;
    } while (p < end && *p >= 0x80);
  }
  return flags;
}

// Whether some id may be a special one: special ids mostly are the first or
// the last of all, so that two ranges tell, which compares many ids at once.
class Near {
 public:
  explicit Near(Span<const uint32_t> special) {
    if (special.size == 0) return;
    int64_t last = 0;
    while (last + 1 < special.size && special[last + 1] == special[last] + 1) {
      ++last;
    }
    first_ = special[0];
    width_ = special[last] - first_;
    if (last + 1 < special.size) rest_ = special[last + 1];
    any_ = true;
  }

  bool Any() const { return any_; }

  // Below the first, the difference wraps.
  bool operator()(uint32_t id) const {
    return (id - first_ <= width_) | (id >= rest_);
  }

 private:
  bool any_ = false;
  uint32_t first_ = 0;
  uint32_t width_ = 0;
  uint32_t rest_ = std::numeric_limits<uint32_t>::max();
};

}  // namespace

void TextFlags(Span<const uint8_t> data, Span<const int64_t> splits,
               Span<const uint8_t> table, Span<uint8_t> flags) {
  CheckSplits(splits, data.size, /*whole=*/true);
  if (table.size != kNumCodePoints) {
    ThrowInvalid("table must have ", kNumCodePoints, " flags, got ",
                 table.size, ".");
  }
  for (int64_t i = 0; i + 1 < splits.size; ++i) {
    flags[i] =
        FlagsOf(data.data + splits[i], data.data + splits[i + 1], table);
  }
}

int64_t CountStored(Span<const uint32_t> ids, Span<const int64_t> splits,
                    const StoredIds& rule) {
  CheckSplits(splits, ids.size, /*whole=*/false);
  for (int64_t i = 0; i + 1 < rule.special.size; ++i) {
    if (rule.special[i] >= rule.special[i + 1]) {
      ThrowInvalid("special ids must ascend.");
    }
  }
  if (rule.eod_id < -1 || rule.eod_id >= rule.vocab_size) {
    ThrowInvalid("the EOD id ", rule.eod_id, " is outside the vocabulary of ",
                 rule.vocab_size, " ids.");
  }
  int64_t count = splits[splits.size - 1] - splits[0];
  if (rule.eod_id >= 0) {
    for (int64_t i = 0; i + 1 < splits.size; ++i) {
      count += splits[i] < splits[i + 1];
    }
  }
  return count;
}

template <typename T>
void StoreIds(Span<const uint32_t> ids, Span<const int64_t> splits,
              const StoredIds& rule, T* out, int64_t* lengths, bool* special) {
  const Near near(rule.special);
  uint32_t largest = 0;
  for (int64_t i = 0; i + 1 < splits.size; ++i) {
    const uint32_t* const begin = ids.data + splits[i];
    const int64_t length = splits[i + 1] - splits[i];
    uint32_t is_near = 0;
    for (int64_t k = 0; k < length; ++k) {
      const uint32_t id = begin[k];
      largest = std::max(largest, id);
      is_near |= static_cast<uint32_t>(near(id));
      out[k] = static_cast<T>(id);
    }
    special[i] = near.Any() && is_near != 0 &&
                 std::any_of(begin, begin + length, [&](uint32_t id) {
                   return near(id) && std::binary_search(rule.special.begin(),
                                                         rule.special.end(),
                                                         id);
                 });
    out += length;
    const bool ended = rule.eod_id >= 0 && length > 0;
    if (ended) *out++ = static_cast<T>(rule.eod_id);
    lengths[i] = length + ended;
  }
  const bool empty = splits[0] == splits[splits.size - 1];
  if (!empty && static_cast<int64_t>(largest) >= rule.vocab_size) {
    ThrowInvalid("The tokenizer gave the id ", largest,
                 ", but its vocabulary has ", rule.vocab_size,
                 " ids: it contradicts itself, and what is written could not "
                 "be read. Take another, or mend it.");
  }
}

template void StoreIds<uint16_t>(Span<const uint32_t>, Span<const int64_t>,
                                 const StoredIds&, uint16_t*, int64_t*, bool*);
template void StoreIds<int32_t>(Span<const uint32_t>, Span<const int64_t>,
                                const StoredIds&, int32_t*, int64_t*, bool*);

}  // namespace hpgrain
