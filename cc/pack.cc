#include "pack.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <numeric>
#include <set>
#include <utility>

#include "errors.h"

namespace hpgrain {
namespace {

constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();

void CheckLengths(Span<const int32_t> lengths) {
  for (int64_t i = 0; i < lengths.size; ++i) {
    if (lengths[i] < 0) {
      ThrowInvalid("Example ", i, " has a length of ", lengths[i],
                   "; lengths are 0 or more.");
    }
  }
}

void CheckAtLeast(const char* name, int64_t value, int64_t least) {
  if (value < least) {
    ThrowInvalid(name, " must be at least ", least, ", got ", value, ".");
  }
}

int64_t CheckedMaxItems(const PackLimits& limits) {
  CheckAtLeast("budget", limits.budget, 1);
  CheckAtLeast("max_items", limits.max_items, 0);
  return limits.max_items == 0 ? kNoLimit : limits.max_items;
}

// The examples that have arrived and are in no row yet, the oldest first.
class Waiting {
 public:
  Waiting(Span<const int32_t> lengths, int64_t arrived) : lengths_(lengths) {
    CheckLengths(lengths);
    if (arrived < 0 || arrived > lengths.size) {
      ThrowInvalid("arrived must lie in [0, ", lengths.size, "], got ",
                   arrived, ".");
    }
    while (arrived_ < arrived) Arrive();
  }

  bool AllArrived() const { return arrived_ == lengths_.size; }

  void Arrive() {
    const int32_t length = lengths_[arrived_];
    if (length > 0) {
      waiting_.push_back(length);
      places_.push_back(arrived_);
      tokens_ += length;
    }
    ++arrived_;
  }

  int64_t count() const { return static_cast<int64_t>(waiting_.size()); }
  int64_t tokens() const { return tokens_; }
  const std::vector<int32_t>& lengths() const { return waiting_; }

  // Makes a row of the examples whose lengths were set to 0.
  void Take(std::vector<int32_t>* left, PackedRows* rows) {
    size_t kept = 0;
    for (size_t i = 0; i < waiting_.size(); ++i) {
      if ((*left)[i] == 0) {
        rows->items.push_back(places_[i]);
        tokens_ -= waiting_[i];
        continue;
      }
      waiting_[kept] = waiting_[i];
      places_[kept] = places_[i];
      ++kept;
    }
    waiting_.resize(kept);
    places_.resize(kept);
    rows->row_splits.push_back(static_cast<int64_t>(rows->items.size()));
    rows->arrived = arrived_;
  }

 private:
  const Span<const int32_t> lengths_;
  int64_t arrived_ = 0;
  int64_t tokens_ = 0;
  std::vector<int32_t> waiting_;
  std::vector<int64_t> places_;
};

// Makes rows while `ready` allows, by `choose(left, room, items)`, which sets
// the lengths of those it takes to 0.
template <typename Ready, typename Choose>
PackedRows OldestFirst(Span<const int32_t> lengths, const PackLimits& limits,
                       int64_t arrived, bool final, const Ready& ready,
                       const Choose& choose) {
  const int64_t max_items = CheckedMaxItems(limits);
  Waiting waiting(lengths, arrived);
  PackedRows rows;
  rows.arrived = arrived;
  std::vector<int32_t> left;
  while (true) {
    while (!ready(waiting) && !waiting.AllArrived()) waiting.Arrive();
    if (waiting.count() == 0 || (!ready(waiting) && !final)) return rows;
    left = waiting.lengths();
    const int64_t room = limits.budget - left[0];
    left[0] = 0;
    if (room > 0 && max_items > 1) choose(&left, room, max_items - 1);
    waiting.Take(&left, &rows);
  }
}

}  // namespace

PackedRows FirstFit(Span<const int32_t> lengths, const PackLimits& limits,
                    int64_t min_buffered, int64_t arrived, bool final) {
  CheckAtLeast("min_buffered", min_buffered, 1);
  const auto ready = [&](const Waiting& waiting) {
    return waiting.count() >= min_buffered &&
           waiting.tokens() >= limits.budget;
  };
  const auto choose = [](std::vector<int32_t>* left, int64_t room,
                         int64_t items) {
    for (int32_t& length : *left) {
      if (length == 0 || length > room) continue;
      room -= length;
      length = 0;
      if (--items == 0 || room == 0) return;
    }
  };
  return OldestFirst(lengths, limits, arrived, final, ready, choose);
}

PackedRows OldestBestFit(Span<const int32_t> lengths, const PackLimits& limits,
                         int64_t window, int64_t arrived, bool final) {
  CheckAtLeast("window", window, 1);
  const auto ready = [&](const Waiting& waiting) {
    return waiting.count() >= window;
  };
  const auto choose = [](std::vector<int32_t>* left, int64_t room,
                         int64_t items) {
    const size_t count = left->size();
    int32_t* const lengths = left->data();
    while (items-- > 0 && room > 0) {
      const auto most = static_cast<int32_t>(
          std::min<int64_t>(room, std::numeric_limits<int32_t>::max()));
      // Two plain loops, which the compiler makes wide ones of.
      int32_t longest = 0;
      for (size_t i = 0; i < count; ++i) {
        const int32_t length = lengths[i];
        longest = std::max(longest, length <= most ? length : 0);
      }
      if (longest == 0) return;
      *std::find(lengths, lengths + count, longest) = 0;
      room -= longest;
    }
  };
  return OldestFirst(lengths, limits, arrived, final, ready, choose);
}

PackedRows BestFitDecreasing(Span<const int32_t> lengths,
                             const PackLimits& limits) {
  const int64_t max_items = CheckedMaxItems(limits);
  CheckLengths(lengths);
  std::vector<int64_t> order(static_cast<size_t>(lengths.size));
  std::iota(order.begin(), order.end(), int64_t{0});
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    return lengths[a] > lengths[b];
  });
  std::vector<int64_t> row_of(order.size(), -1);
  std::vector<int64_t> counts;
  std::set<std::pair<int64_t, int64_t>> open;  // (room, row)
  for (const int64_t item : order) {
    const int64_t length = lengths[item];
    if (length == 0) break;
    const auto found = open.lower_bound({length, 0});
    auto row = static_cast<int64_t>(counts.size());
    int64_t room = limits.budget - length;
    if (found == open.end()) {
      counts.push_back(0);
    } else {
      row = found->second;
      room = found->first - length;
      open.erase(found);
    }
    row_of[static_cast<size_t>(item)] = row;
    if (++counts[static_cast<size_t>(row)] < max_items && room > 0) {
      open.emplace(room, row);
    }
  }
  PackedRows rows;
  rows.arrived = lengths.size;
  std::vector<int64_t> next(1, 0);
  for (const int64_t count : counts) {
    rows.row_splits.push_back(rows.row_splits.back() + count);
  }
  next.assign(rows.row_splits.begin(), rows.row_splits.end());
  rows.items.resize(static_cast<size_t>(rows.row_splits.back()));
  for (size_t item = 0; item < row_of.size(); ++item) {
    if (row_of[item] < 0) continue;
    const auto row = static_cast<size_t>(row_of[item]);
    rows.items[static_cast<size_t>(next[row]++)] = static_cast<int64_t>(item);
  }
  return rows;
}

}  // namespace hpgrain
