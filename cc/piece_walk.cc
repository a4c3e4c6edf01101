#include "piece_walk.h"

#include <algorithm>
#include <vector>

#include "errors.h"
#include "search.h"

namespace hpgrain {

PieceWalk::PieceWalk(const TokenFile& file, int64_t first, int64_t last,
                     Span<const int64_t> starts, int32_t source)
    : file_(file), first_(first), last_(last), starts_(starts),
      source_(source) {}

// The tokens of a sequence, once where it begins and ends agrees with its
// neighbours. One wrong pointer or length is seen from the sequence it
// belongs to or from the one before.
int64_t PieceWalk::CheckedLength(int64_t sequence) const {
  const int64_t length = file_.Length(sequence);
  if (starts_.data != nullptr) {
    const int64_t i = sequence - first_;
    if (length < 0 || starts_[i + 1] - starts_[i] != length) {
      ThrowInvalid("sequence ", sequence, " has ", length,
                   " tokens in the index, but starts give it ",
                   starts_[i + 1] - starts_[i]);
    }
    return length;
  }
  if (length < 0) {
    ThrowInvalid("sequence ", sequence, " has the length ", length);
  }
  // Nothing follows the file's last sequence: its own beginning is compared
  // with the end of the one before.
  const bool is_last = sequence + 1 == file_.num_sequences;
  const int64_t one = is_last ? sequence - 1 : sequence;
  if (one < 0) return length;
  const int64_t one_length = file_.Length(one);
  const int64_t begin = file_.Pointer(one);
  const int64_t next = file_.Pointer(one + 1);
  int64_t end = 0;
  if (__builtin_add_overflow(begin, one_length * file_.item_size, &end) ||
      end != next) {
    ThrowInvalid("sequence ", one, " begins at byte ", begin, " and has ",
                 one_length, " tokens of ", file_.item_size,
                 " bytes, but sequence ", one + 1, " begins at byte ", next,
                 ": they do not lie back to back");
  }
  return length;
}

// Whether a document begins after sequence `previous` and up to `sequence`.
bool PieceWalk::BeginsDocument(int64_t previous, int64_t sequence,
                               int64_t* guess) const {
  const int64_t size = file_.num_document_indices;
  // Where each document is one sequence, document s begins at sequence s.
  if (sequence < size && file_.DocumentIndex(sequence) == sequence) {
    return true;
  }
  if (*guess < 0) {
    *guess = static_cast<int64_t>(static_cast<double>(previous) *
                                  static_cast<double>(size) /
                                  static_cast<double>(file_.num_sequences));
  }
  *guess = FindFirstAtLeast(file_.document_indices, 0, size, previous + 1,
                            *guess);
  return *guess < size && file_.DocumentIndex(*guess) <= sequence;
}

void PieceWalk::CutOne(int64_t sequence, int64_t begin, int64_t count,
                       RowPlans* out) const {
  int64_t offset = 0;
  if (starts_.data != nullptr) {
    offset = begin - starts_[sequence - first_];
  } else {
    // Bytes first: a pointer that is not a whole number of tokens away means
    // a damaged index, not a token cut in two.
    const int64_t target = file_.Pointer(first_) + begin * file_.item_size;
    int64_t bytes = 0;
    if (__builtin_sub_overflow(target, file_.Pointer(sequence), &bytes) ||
        bytes % file_.item_size != 0) {
      ThrowInvalid("sequence ", sequence, " begins at byte ",
                   file_.Pointer(sequence), ", not a whole number of ",
                   file_.item_size, "-byte tokens from byte ",
                   file_.Pointer(first_), " of sequence ", first_);
    }
    offset = bytes / file_.item_size;
  }
  int64_t length = CheckedLength(sequence);
  if (offset < 0 || offset >= length) {
    ThrowInvalid("sequence ", sequence, " should hold token ", begin,
                 " of the split as its token ", offset, ", but has ", length,
                 " tokens");
  }
  int64_t left = count;
  int64_t previous = -1;
  int64_t guess = -1;
  while (true) {
    const int64_t take = std::min(left, length - offset);
    if (take > 0) {
      out->source.push_back(source_);
      out->sequence.push_back(sequence);
      out->offset.push_back(offset);
      out->length.push_back(static_cast<int32_t>(take));
      out->boundary.push_back(previous < 0 ||
                              BeginsDocument(previous, sequence, &guess));
      previous = sequence;
      left -= take;
    }
    if (left == 0) return;
    offset = 0;
    if (++sequence == last_) {
      ThrowInvalid("sequence ", last_ - 1, " ends ", left,
                   " tokens before the row of ", count,
                   " tokens that begins at token ", begin,
                   " does: the lengths add up to less than the pointers "
                   "tell.");
    }
    length = CheckedLength(sequence);
  }
}

RowPlans PieceWalk::Cut(Span<const int64_t> begins,
                        Span<const int64_t> counts) const {
  constexpr int64_t kGroup = 64;
  RowPlans out;
  const int64_t num_rows = begins.size;
  out.row_splits.reserve(num_rows + 1);
  out.row_splits.push_back(0);
  // Room for rows of many documents, since growing costs more than room; a
  // hint alone, so bounded where a caller plans very many rows.
  const size_t expected =
      static_cast<size_t>(std::min(num_rows, int64_t{4096})) * 16;
  out.source.reserve(expected);
  out.sequence.reserve(expected);
  out.offset.reserve(expected);
  out.length.reserve(expected);
  out.boundary.reserve(expected);

  int64_t targets[kGroup];
  int64_t found[kGroup];
  for (int64_t group = 0; group < num_rows; group += kGroup) {
    const int64_t size = std::min(kGroup, num_rows - group);
    if (starts_.data != nullptr) {
      FindLastAtMost(reinterpret_cast<const uint8_t*>(starts_.data), 0,
                     starts_.size - 1, {begins.data + group, size},
                     {found, size});
      for (int64_t i = 0; i < size; ++i) found[i] += first_;
    } else {
      const int64_t base = file_.Pointer(first_);
      for (int64_t i = 0; i < size; ++i) {
        int64_t bytes = 0;
        if (__builtin_mul_overflow(begins[group + i],
                                   static_cast<int64_t>(file_.item_size),
                                   &bytes) ||
            base < 0 || __builtin_add_overflow(base, bytes, &targets[i])) {
          ThrowInvalid("sequence ", first_, " begins at byte ", base,
                       ": token ", begins[group + i],
                       " after it lies beyond any file");
        }
      }
      FindLastAtMost(file_.pointers, first_, last_, {targets, size},
                     {found, size});
    }
    // A row's pieces mostly lie within two cache lines of each array.
    // Addresses past an array's end are harmless to prefetch.
    for (int64_t i = 0; i < size; ++i) {
      const uint8_t* const length = file_.lengths + found[i] * 4;
      const uint8_t* const document = file_.document_indices + found[i] * 8;
      __builtin_prefetch(length);
      __builtin_prefetch(length + 64);
      __builtin_prefetch(document);
      __builtin_prefetch(document + 64);
      __builtin_prefetch(file_.pointers + found[i] * 8 + 64);
    }
    for (int64_t i = 0; i < size; ++i) {
      CutOne(found[i], begins[group + i], counts[group + i], &out);
      out.row_splits.push_back(static_cast<int64_t>(out.source.size()));
    }
  }
  return out;
}

}  // namespace hpgrain
