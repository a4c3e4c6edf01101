// Packing: that every example is in one row, and what no budget holds.

#include <algorithm>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <vector>

#include "check.h"
#include "feistel.h"
#include "pack.h"

namespace hpgrain {
namespace {

using Lengths = std::vector<int32_t>;

Span<const int32_t> View(const Lengths& lengths) {
  return {lengths.data(), static_cast<int64_t>(lengths.size())};
}

Lengths Random(int64_t count, int32_t most) {
  Lengths lengths;
  uint64_t state = 1;
  for (int64_t i = 0; i < count; ++i) {
    state = Mix64(state + 0x9E3779B9u);
    lengths.push_back(static_cast<int32_t>(state % (most + 1u)));
  }
  return lengths;
}

void CheckWhole(const Lengths& lengths, int64_t budget,
                const PackedRows& rows) {
  std::vector<int64_t> seen = rows.items;
  std::sort(seen.begin(), seen.end());
  std::vector<int64_t> expected;
  for (size_t i = 0; i < lengths.size(); ++i) {
    if (lengths[i] > 0) expected.push_back(static_cast<int64_t>(i));
  }
  CHECK(seen == expected);
  for (size_t r = 0; r + 1 < rows.row_splits.size(); ++r) {
    int64_t tokens = 0;
    const int64_t begin = rows.row_splits[r];
    const int64_t end = rows.row_splits[r + 1];
    CHECK(begin < end);
    for (int64_t i = begin; i < end; ++i) {
      CHECK(i == begin || rows.items[i - 1] < rows.items[i]);
      tokens += lengths[rows.items[i]];
    }
    CHECK(tokens <= budget || end - begin == 1);
  }
}

void EveryExampleIsInOneRow() {
  const Lengths lengths = Random(5000, 900);
  for (const int64_t budget : {1, 100, 1000, 1 << 20}) {
    CheckWhole(lengths, budget,
               FirstFit(View(lengths), {budget, 0}, 200, 0, true));
    CheckWhole(lengths, budget,
               OldestBestFit(View(lengths), {budget, 0}, 64, 0, true));
    CheckWhole(lengths, budget, BestFitDecreasing(View(lengths), {budget, 0}));
  }
}

void NoBudgetOverflows() {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  const Lengths lengths(100, std::numeric_limits<int32_t>::max());
  CHECK(FirstFit(View(lengths), {kMost, 0}, 1, 0, true).row_splits.size() ==
        2);
  CHECK(OldestBestFit(View(lengths), {kMost, 0}, 100, 0, true)
            .row_splits.size() == 2);
  CHECK(BestFitDecreasing(View(lengths), {kMost, 0}).row_splits.size() == 2);
  CHECK(OldestBestFit(View(lengths), {1, 0}, 100, 0, true)
            .row_splits.size() == 101);
}

void NothingIsNothing() {
  const Lengths none;
  CHECK(FirstFit(View(none), {1, 0}, 1, 0, true).items.empty());
  CHECK(OldestBestFit(View(none), {1, 0}, 1, 0, false).items.empty());
  CHECK(BestFitDecreasing(View(none), {1, 0}).items.empty());
  const Lengths wrong = {1, -1};
  CHECK_THROWS(BestFitDecreasing(View(wrong), {1, 0}), std::invalid_argument,
               "Example 1");
  CHECK_THROWS(FirstFit(View(wrong), {0, 0}, 1, 0, true),
               std::invalid_argument, "budget");
}

}  // namespace
}  // namespace hpgrain

int main() {
  hpgrain::EveryExampleIsInOneRow();
  hpgrain::NoBudgetOverflows();
  hpgrain::NothingIsNothing();
  return Failures() != 0;
}
