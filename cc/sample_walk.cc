#include "sample_walk.h"

#include <algorithm>
#include <system_error>
#include <thread>
#include <vector>

#include "clones.h"
#include "errors.h"

namespace hpgrain {
namespace {

using int128 = __int128;

constexpr int64_t kMaxInt32 = (int64_t{1} << 31) - 1;
// A sum of two numbers below it and one length fits into 64 bits.
constexpr int64_t kMaxTokens = int64_t{1} << 62;

HPGRAIN_CLONES
int64_t Largest(const uint8_t* values, int64_t size) {
  int64_t largest = 0;
  for (int64_t i = 0; i < size; ++i) {
    const int64_t value = LoadUnaligned<int64_t>(values, i);
    largest = value > largest ? value : largest;
  }
  return largest;
}

[[noreturn]] void ThrowBadDocument(const SampleWalkConfig& c, int64_t place) {
  const int64_t id = c.document_index[place];
  if (id < 0 || id >= c.lengths.size) {
    ThrowInvalid("document_index[", place, "] is ", id, ", but there are ",
                 c.lengths.size, " lengths; it must lie in [0, ",
                 c.lengths.size, ").");
  }
  ThrowInvalid("lengths[", id, "] is ", c.lengths[id], " (document_index[",
               place, "]); a document has 0 tokens or more.");
}

// The lengths of documents [begin, end) of the index, one after another. In
// shuffled order each is a cache miss, so they are asked for some steps ahead,
// and several threads wait for them at once. A document that does not exist
// becomes -1.
template <typename Id, typename Length>
void GatherLengths(const SampleWalkConfig& c, int64_t begin, int64_t end,
                   Length* out) {
  constexpr int64_t kAhead = 32;
  const uint8_t* const ids = c.document_index.data;
  const auto known = static_cast<uint64_t>(c.lengths.size);
  for (int64_t place = begin; place < end; ++place) {
    if (place + kAhead < end) {
      IntArray::PrefetchItem(c.lengths.data,
                             LoadUnaligned<Id>(ids, place + kAhead),
                             sizeof(Length));
    }
    const int64_t id = LoadUnaligned<Id>(ids, place);
    *out++ = static_cast<uint64_t>(id) < known
                 ? LoadUnaligned<Length>(c.lengths.data, id)
                 : Length{-1};
  }
}

// Calls work(begin, end) on parts of [0, size), one in this thread.
template <typename Work>
void InThreads(int64_t size, const Work& work) {
  // More would wait for the same memory.
  constexpr int64_t kMost = 4;
  // Less than this is done before a thread has begun.
  constexpr int64_t kLeast = int64_t{1} << 16;
  const int64_t parts = std::clamp<int64_t>(
      std::min<int64_t>(std::thread::hardware_concurrency(), size / kLeast), 1,
      kMost);
  std::vector<std::thread> others;
  // From here on nothing but a thread's start may fail.
  others.reserve(kMost);
  int64_t begin = 0;
  for (int64_t part = 1; part < parts; ++part) {
    const int64_t end = size * part / parts;
    try {
      others.emplace_back(work, begin, end);
    } catch (const std::system_error&) {
      break;  // no more threads to be had: the rest is done here
    }
    begin = end;
  }
  work(begin, size);
  for (std::thread& other : others) other.join();
}

template <typename Id, typename Length, typename Out>
class Walk {
 public:
  Walk(const SampleWalkConfig& config, Out* out)
      : config_(config),
        out_(out),
        end_(static_cast<uint64_t>(config.seq_length + config.extra)) {}

  void Run() {
    // Small enough for a cache, large enough to be worth the threads.
    constexpr int64_t kBlock = int64_t{1} << 20;
    const int64_t size = config_.document_index.size;
    *out_++ = 0;
    *out_++ = 0;
    if (config_.num_samples == 0) return;
    std::vector<Length> lengths(std::min(kBlock, size));
    for (int64_t first = 0; first < size; first += kBlock) {
      const int64_t count = std::min(kBlock, size - first);
      InThreads(count, [&](int64_t begin, int64_t end) {
        GatherLengths<Id>(config_, first + begin, first + end,
                          lengths.data() + begin);
      });
      for (int64_t i = 0; i < count; ++i) {
        if (Step(first + i, lengths[i])) return;
      }
    }
    EndShort();
  }

 private:
  int64_t IdAt(int64_t place) const {
    return LoadUnaligned<Id>(config_.document_index.data, place);
  }

  // Lays one document behind those before it; whether all samples are done.
  bool Step(int64_t place, int64_t length) {
    if (length < 0) ThrowBadDocument(config_, place);
    const uint64_t after = begin_ + static_cast<uint64_t>(length);
    while (end_ <= after) {
      const uint64_t extra = static_cast<uint64_t>(config_.extra);
      *out_++ = static_cast<Out>(place);
      *out_++ = static_cast<Out>(end_ - extra - begin_);
      end_ += static_cast<uint64_t>(config_.seq_length);
      if (++done_ == config_.num_samples) return true;
    }
    begin_ = after;
    return false;
  }

  // The documents are at an end: so is the last sample, or it is an error.
  void EndShort() {
    const auto& c = config_;
    const uint64_t last_begin = end_ - static_cast<uint64_t>(
                                           c.seq_length + c.extra);
    if (done_ + 1 < c.num_samples ||
        begin_ <= last_begin + static_cast<uint64_t>(c.extra)) {
      ThrowInvalid("the ", c.document_index.size, " documents hold ", begin_,
                   " tokens, which end in sample ", done_, " of ",
                   c.num_samples, " samples of ", c.seq_length, " + ",
                   c.extra, " tokens; ask for fewer samples, or give all "
                   "documents.");
    }
    int64_t place = c.document_index.size - 1;
    while (c.lengths[IdAt(place)] == 0) --place;
    *out_++ = static_cast<Out>(place);
    *out_++ = static_cast<Out>(c.lengths[IdAt(place)] - c.extra);
  }

  const SampleWalkConfig config_;
  Out* out_;
  uint64_t begin_ = 0;  // tokens of the documents before
  uint64_t end_;        // of the sample being filled
  int64_t done_ = 0;
};

}  // namespace

bool CheckSampleWalk(const SampleWalkConfig& c) {
  if (c.seq_length < 1 || c.extra < 0 || c.extra > 1 ||
      c.seq_length > kMaxInt32 - c.extra) {
    ThrowInvalid("a sample of ", c.seq_length, " + ", c.extra,
                 " tokens; seq_length must be at least 1, extra 0 or 1 and "
                 "the sample below 2**31.");
  }
  if (c.num_samples < 0) {
    ThrowInvalid("num_samples is ", c.num_samples, "; it must be 0 or more.");
  }
  // Known before anything of this size is made.
  const int64_t longest = c.lengths.kind == IntKind::kInt64
                              ? Largest(c.lengths.data, c.lengths.size)
                              : kMaxInt32;
  const int128 most = int128{longest} * c.document_index.size;
  const int128 least =
      int128{c.num_samples - 1} * c.seq_length + c.extra + 1;
  if (c.num_samples > 0 && (least > most || least > kMaxTokens)) {
    ThrowInvalid(c.num_samples, " samples of ", c.seq_length, " + ", c.extra,
                 " tokens are more than ", c.document_index.size,
                 " documents can hold; ask for fewer samples.");
  }
  return longest > kMaxInt32 || c.document_index.size > kMaxInt32;
}

template <typename Out>
void WalkSamples(const SampleWalkConfig& config, Out* out) {
  const bool wide_ids = config.document_index.kind == IntKind::kInt64;
  const bool wide_lengths = config.lengths.kind == IntKind::kInt64;
  if (wide_ids && wide_lengths) {
    Walk<int64_t, int64_t, Out>(config, out).Run();
  } else if (wide_ids) {
    Walk<int64_t, int32_t, Out>(config, out).Run();
  } else if (wide_lengths) {
    Walk<int32_t, int64_t, Out>(config, out).Run();
  } else {
    Walk<int32_t, int32_t, Out>(config, out).Run();
  }
}

template void WalkSamples<int32_t>(const SampleWalkConfig&, int32_t*);
template void WalkSamples<int64_t>(const SampleWalkConfig&, int64_t*);

}  // namespace hpgrain
