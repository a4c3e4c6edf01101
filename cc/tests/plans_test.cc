// Searching, planning and merging, over arrays without a byte to spare.

#include <algorithm>
#include <cstdint>
#include <stdexcept>
#include <vector>

#include "check.h"
#include "feistel.h"
#include "pair.h"
#include "row_plans.h"
#include "search.h"
#include "stable_rows.h"

namespace hpgrain {
namespace {

uint64_t Random(uint64_t* state) { return Mix64(*state += 0x9E3779B9u); }

// Flat, steep, and both; every place of a target against std::upper_bound.
void SearchesEqualTheStandardOnes() {
  uint64_t state = 1;
  for (int round = 0; round < 300; ++round) {
    const int64_t size = 1 + static_cast<int64_t>(Random(&state) % 200);
    const int kind = static_cast<int>(Random(&state) % 3);
    std::vector<int64_t> values;
    int64_t value = static_cast<int64_t>(Random(&state) % 5);
    for (int64_t i = 0; i < size; ++i) {
      values.push_back(value);
      const uint64_t step = Random(&state);
      value += kind == 0 ? step % 2 : kind == 1 ? step % 100
                                    : i % 50 == 0 ? int64_t{1} << 50 : 0;
    }
    const OddBytes bytes(values);
    const int64_t begin = static_cast<int64_t>(Random(&state) % size);
    std::vector<int64_t> targets;
    for (int64_t i = begin; i < size; ++i) {
      for (int64_t d = -1; d <= 1; ++d) targets.push_back(values[i] + d);
    }
    targets.push_back(INT64_MIN);
    targets.push_back(INT64_MAX);
    const int64_t count = static_cast<int64_t>(targets.size());
    std::vector<int64_t> found(count);
    FindLastAtMost(bytes.data(), begin, size, {targets.data(), count},
                   {found.data(), count});
    for (int64_t i = 0; i < count; ++i) {
      const auto first = values.begin() + begin;
      const auto above = std::upper_bound(first, values.end(), targets[i]);
      const int64_t wanted =
          std::max<int64_t>(above - values.begin() - 1, begin);
      CHECK(found[i] == wanted);
      const auto at_least = std::lower_bound(first, values.end(), targets[i]);
      for (const int64_t guess : {begin, size, size / 2, INT64_MAX}) {
        CHECK(FindFirstAtLeast(bytes.data(), begin, size, targets[i],
                               guess) == at_least - values.begin());
      }
    }
  }
}

void SearchesOfNoOrderStayInside() {
  uint64_t state = 2;
  for (int round = 0; round < 2000; ++round) {
    const int64_t size = 1 + static_cast<int64_t>(Random(&state) % 100);
    std::vector<int64_t> values;
    for (int64_t i = 0; i < size; ++i) {
      values.push_back(static_cast<int64_t>(Random(&state)));
    }
    const OddBytes bytes(values);
    std::vector<int64_t> targets(values);
    std::vector<int64_t> found(size);
    FindLastAtMost(bytes.data(), 0, size, {targets.data(), size},
                   {found.data(), size});
    for (const int64_t f : found) CHECK(f >= 0 && f < size);
    const int64_t least = FindFirstAtLeast(bytes.data(), 0, size, values[0],
                                           static_cast<int64_t>(state));
    CHECK(least >= 0 && least <= size);
  }
}

StableRowsConfig Config(int64_t sequences, int64_t rows, int64_t tokens) {
  StableRowsConfig config;
  config.last_sequence = sequences;
  config.seq_length = 4;
  config.extra = 1;
  config.rows_per_epoch = rows;
  config.num_tokens = tokens;
  config.shuffle = false;
  return config;
}

// Plans rows that need no key.
RowPlans PlanAll(StableRows* rows, const TokenFile& file,
                 Span<const int64_t> wanted, int32_t source) {
  RowPlans plans;
  CHECK(rows->Plan(file, wanted, source, {}, &plans));
  return plans;
}

RowPlans PlanWith(const StableRowsConfig& config, const TokenFile& file,
                  Span<const int64_t> wanted) {
  StableRows rows(config);
  return PlanAll(&rows, file, wanted, 0);
}

void PlansCutTheTokensInOrder() {
  const Pair pair({3, 0, 2, 0, 0, 4, 0});
  StableRows rows(Config(7, 2, 9));
  const std::vector<int64_t> wanted = {1, 0};
  const RowPlans plans = PlanAll(&rows, pair.file, {wanted.data(), 2}, 5);
  CHECK((plans.row_splits == std::vector<int64_t>{0, 2, 4}));
  CHECK((plans.source == std::vector<int32_t>{5, 5, 5, 5}));
  CHECK((plans.sequence == std::vector<int64_t>{2, 5, 0, 2}));
  CHECK((plans.offset == std::vector<int64_t>{1, 0, 0, 0}));
  CHECK((plans.length == std::vector<int32_t>{1, 4, 3, 2}));
  CHECK((plans.boundary == std::vector<uint8_t>{1, 1, 1, 1}));
}

void PlansNameWhatIsWrong() {
  const std::vector<int64_t> wanted = {0, 1};
  const Span<const int64_t> two{wanted.data(), 2};
  const std::vector<int32_t> lengths = {3, 2, 4};
  const Pair apart(lengths, {0, 6, 12});
  CHECK_THROWS(PlanWith(Config(3, 2, 9), apart.file, two),
               std::invalid_argument, "sequence 1 begins at byte 6");
  for (const int64_t wild : {INT64_MIN, INT64_MAX, int64_t{-2}, int64_t{7}}) {
    for (size_t place = 0; place < 3; ++place) {
      std::vector<int64_t> pointers = Pair::Pointers(lengths);
      pointers[place] = wild;
      const Pair pair(lengths, pointers);
      CHECK_THROWS(PlanWith(Config(3, 2, 9), pair.file, two),
                   std::invalid_argument, "sequence ");
    }
  }
  CHECK_THROWS(StableRows(Config(3, 3, 9)), std::invalid_argument,
               "do not fit");
  const Pair pair(lengths);
  CHECK_THROWS(PlanWith(Config(4, 2, 9), pair.file, two),
               std::invalid_argument, "the file holds 3");
  StableRowsConfig shuffled = Config(3, 2, 9);
  shuffled.shuffle = true;
  StableRows keyed(shuffled);
  RowPlans plans;
  CHECK(!keyed.Plan(pair.file, two, 0, {}, &plans));
  CHECK(keyed.Plan(pair.file, two, 0, {{0, Key{1, 2}}}, &plans));
  CHECK(keyed.Plan(pair.file, two, 0, {}, &plans));
}

void MergedPlansStandInTheirRows() {
  const Pair pair({3, 2, 4});
  StableRows rows(Config(3, 2, 9));
  const std::vector<int64_t> first = {0};
  const std::vector<int64_t> second = {1};
  const RowPlans a = PlanAll(&rows, pair.file, {first.data(), 1}, 1);
  const RowPlans b = PlanAll(&rows, pair.file, {second.data(), 1}, 2);
  const auto view = [](const RowPlans& plans) {
    const int64_t pieces = static_cast<int64_t>(plans.source.size());
    return RowPlansView{{plans.row_splits.data(), 2},
                        {plans.source.data(), pieces},
                        {plans.sequence.data(), pieces},
                        {plans.offset.data(), pieces},
                        {plans.length.data(), pieces},
                        {plans.boundary.data(), pieces}};
  };
  const RowPlans merged = MergePlans(
      2, {{{second.data(), 1}, view(a)}, {{first.data(), 1}, view(b)}});
  CHECK(merged.source.front() == 2 && merged.source.back() == 1);
  CHECK_THROWS(MergePlans(2, {{{first.data(), 1}, view(a)},
                              {{first.data(), 1}, view(b)}}),
               std::invalid_argument, "stands twice");
}

}  // namespace
}  // namespace hpgrain

int main() {
  hpgrain::SearchesEqualTheStandardOnes();
  hpgrain::SearchesOfNoOrderStayInside();
  hpgrain::PlansCutTheTokensInOrder();
  hpgrain::PlansNameWhatIsWrong();
  hpgrain::MergedPlansStandInTheirRows();
  return Failures() != 0;
}
