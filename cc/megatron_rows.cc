#include "megatron_rows.h"

#include <algorithm>

#include "errors.h"
#include "search.h"

namespace hpgrain {
namespace {

constexpr int64_t kMaxRow = (int64_t{1} << 31) - 1;
// Rows whose cache misses overlap, and documents of one that are asked for
// ahead.
constexpr int64_t kGroup = 32;
constexpr int64_t kAhead = 32;

// The places in document_index and the offsets that one sample lies between.
struct Bounds {
  int64_t row;
  int64_t sample;
  int64_t first;
  int64_t first_offset;
  int64_t last;
  int64_t last_offset;
};

class Planner {
 public:
  Planner(const TokenFile& file, const MegatronRows& index, int32_t source);

  RowPlans Plan(Span<const int64_t> rows);

 private:
  void FindSamples(const int64_t* rows, int64_t count);
  void FindDocuments(int64_t count);
  int64_t DocumentAt(const Bounds& b, int64_t place) const;
  void Cut(const Bounds& bounds);
  bool GoesOn(int64_t previous, int64_t sequence) const;

  // The part that is common to all errors of an index.
  template <typename... Parts>
  [[noreturn]] void ThrowMisfit(const Bounds& b, const Parts&... parts) const {
    ThrowInvalid("the index does not fit the corpus: row ", b.row,
                 " is sample ", b.sample, ", ", parts...,
                 "; build the index again for this corpus.");
  }

  const TokenFile& file_;
  const MegatronRows& index_;
  const int32_t source_;
  const int64_t num_samples_;
  Bounds bounds_[kGroup];
  RowPlans out_;
};

Planner::Planner(const TokenFile& file, const MegatronRows& index,
                 int32_t source)
    : file_(file),
      index_(index),
      source_(source),
      num_samples_(index.sample_index.size / 2 - 1) {
  if (index.seq_length < 1 || index.extra < 0 || index.extra > 1 ||
      index.seq_length > kMaxRow - index.extra) {
    ThrowInvalid("a row of ", index.seq_length, " + ", index.extra,
                 " tokens; seq_length must be at least 1, extra 0 or 1 and "
                 "the row below 2**31.");
  }
  if (num_samples_ < 0) {
    ThrowInvalid("sample_index must hold one entry or more, got none.");
  }
  if (index.shuffled && index.shuffle_index.size != num_samples_) {
    ThrowInvalid("shuffle_index holds ", index.shuffle_index.size,
                 " rows, sample_index ", num_samples_,
                 " samples; they must be of one index.");
  }
}

// In steps over all rows of a group, each of which asks for what the next
// reads: the misses of a batch then overlap.
void Planner::FindSamples(const int64_t* rows, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    if (rows[i] < 0 || rows[i] >= num_samples_) {
      ThrowOutOfRange("row ", rows[i], " was asked for; the index has ",
                      num_samples_, " rows, counted from 0.");
    }
    if (index_.shuffled) index_.shuffle_index.Prefetch(rows[i]);
  }
  for (int64_t i = 0; i < count; ++i) {
    Bounds& b = bounds_[i];
    b.row = rows[i];
    b.sample = index_.shuffled ? index_.shuffle_index[b.row] : b.row;
    if (b.sample < 0 || b.sample >= num_samples_) {
      ThrowMisfit(b, "of which there are ", num_samples_);
    }
    index_.sample_index.Prefetch(2 * b.sample);
    index_.sample_index.Prefetch(2 * b.sample + 3);
  }
}

void Planner::FindDocuments(int64_t count) {
  const int64_t size = index_.document_index.size;
  for (int64_t i = 0; i < count; ++i) {
    Bounds& b = bounds_[i];
    b.first = index_.sample_index[2 * b.sample];
    b.first_offset = index_.sample_index[2 * b.sample + 1];
    b.last = index_.sample_index[2 * b.sample + 2];
    b.last_offset = index_.sample_index[2 * b.sample + 3];
    if (b.first < 0 || b.first > b.last || b.last >= size) {
      ThrowMisfit(b, "which lies from place ", b.first, " to ", b.last,
                  " of document_index, which holds ", size);
    }
    index_.document_index.Prefetch(b.first);
    index_.document_index.Prefetch(std::min(b.last, b.first + kAhead));
  }
  for (int64_t i = 0; i < count; ++i) {
    const Bounds& b = bounds_[i];
    const int64_t end = std::min(b.last + 1, b.first + kAhead);
    for (int64_t place = b.first; place < end; ++place) {
      IntArray::PrefetchItem(file_.lengths, index_.document_index[place], 4);
    }
  }
}

int64_t Planner::DocumentAt(const Bounds& b, int64_t place) const {
  if (place + kAhead <= b.last) {
    IntArray::PrefetchItem(file_.lengths,
                           index_.document_index[place + kAhead], 4);
  }
  const int64_t sequence = index_.document_index[place];
  if (sequence < 0 || sequence >= file_.num_sequences) {
    ThrowMisfit(b, "place ", place, " of document_index is sequence ",
                sequence, ", of which the file has ", file_.num_sequences);
  }
  return sequence;
}

// Whether a sequence goes on with the document of another, which may have
// empty sequences between the two.
bool Planner::GoesOn(int64_t previous, int64_t sequence) const {
  if (sequence <= previous) return false;
  const int64_t next = previous + 1;
  if (next < sequence && file_.Length(next) != 0) return false;
  const int64_t size = file_.num_document_indices;
  // Near where it stands if documents have about as many sequences each.
  const int64_t guess = static_cast<int64_t>(
      static_cast<double>(sequence) * static_cast<double>(size) /
      static_cast<double>(file_.num_sequences));
  const int64_t found =
      FindFirstAtLeast(file_.document_indices, 0, size, next, guess);
  if (found < size && file_.DocumentIndex(found) <= sequence) return false;
  for (int64_t between = next + 1; between < sequence; ++between) {
    if (file_.Length(between) != 0) return false;
  }
  return true;
}

void Planner::Cut(const Bounds& b) {
  const int64_t wanted = index_.seq_length + index_.extra;
  int64_t total = 0;
  int64_t previous = -1;
  for (int64_t place = b.first; place <= b.last; ++place) {
    const int64_t sequence = DocumentAt(b, place);
    const int64_t length = file_.Length(sequence);
    const int64_t begin = place == b.first ? b.first_offset : 0;
    // Compared before the extra token is added, which may not fit 64 bits.
    const bool fits = place < b.last || b.last_offset <= length - index_.extra;
    const int64_t end = place < b.last || !fits
                            ? length
                            : b.last_offset + index_.extra;
    if (length < 0 || !fits || begin < 0 || begin > end) {
      ThrowMisfit(b, "which reads sequence ", sequence, " of ", length,
                  " tokens from ", begin, " to ",
                  place < b.last ? Message("its end")
                                 : Message(b.last_offset, " + ",
                                           index_.extra));
    }
    const int64_t take = end - begin;
    if (take == 0) continue;
    total += take;
    if (total > wanted) break;
    out_.source.push_back(source_);
    out_.sequence.push_back(sequence);
    out_.offset.push_back(begin);
    out_.length.push_back(static_cast<int32_t>(take));
    out_.boundary.push_back(previous < 0 || !GoesOn(previous, sequence));
    previous = sequence;
  }
  const bool may_be_short = b.sample == num_samples_ - 1;
  if (total > wanted ||
      (total < wanted && !(may_be_short && total > index_.extra))) {
    ThrowMisfit(b, "which has ", total, total > wanted ? " or more" : "",
                " tokens, not ", index_.seq_length, " + ", index_.extra);
  }
}

RowPlans Planner::Plan(Span<const int64_t> rows) {
  out_.row_splits.reserve(rows.size + 1);
  out_.row_splits.push_back(0);
  // Room for rows of many documents, since growing costs more than room; a
  // hint alone, so bounded where a caller plans very many rows.
  const size_t expected =
      static_cast<size_t>(std::min(rows.size, int64_t{4096})) * 16;
  out_.source.reserve(expected);
  out_.sequence.reserve(expected);
  out_.offset.reserve(expected);
  out_.length.reserve(expected);
  out_.boundary.reserve(expected);
  for (int64_t group = 0; group < rows.size; group += kGroup) {
    const int64_t count = std::min(kGroup, rows.size - group);
    FindSamples(rows.data + group, count);
    FindDocuments(count);
    for (int64_t i = 0; i < count; ++i) {
      Cut(bounds_[i]);
      out_.row_splits.push_back(static_cast<int64_t>(out_.source.size()));
    }
  }
  return std::move(out_);
}

}  // namespace

RowPlans PlanSamples(const TokenFile& file, const MegatronRows& index,
                     Span<const int64_t> rows, int32_t source) {
  return Planner(file, index, source).Plan(rows);
}

}  // namespace hpgrain
