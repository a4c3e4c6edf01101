// Megatron's samples: walks and plans over arrays without a byte to spare.

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <stdexcept>
#include <utility>
#include <vector>

#include "check.h"
#include "feistel.h"
#include "megatron_rows.h"
#include "pair.h"
#include "sample_walk.h"

namespace hpgrain {
namespace {

uint64_t Random(uint64_t* state) { return Mix64(*state += 0x9E3779B9u); }

template <typename T>
constexpr IntKind KindOf() {
  return sizeof(T) == 8 ? IntKind::kInt64 : IntKind::kInt32;
}

// A walk over arrays at odd addresses, its ends just where memory ends.
template <typename Length, typename Id>
std::vector<int64_t> WalkOver(const std::vector<Length>& lengths,
                              const std::vector<Id>& ids, int64_t seq_length,
                              int64_t extra, int64_t num_samples) {
  const OddBytes length_bytes(lengths);
  const OddBytes id_bytes(ids);
  const SampleWalkConfig config{
      {length_bytes.data(), static_cast<int64_t>(lengths.size()),
       KindOf<Length>()},
      {id_bytes.data(), static_cast<int64_t>(ids.size()), KindOf<Id>()},
      seq_length, extra, num_samples};
  if (CheckSampleWalk(config)) {
    std::vector<int64_t> out(2 * num_samples + 2);
    WalkSamples<int64_t>(config, out.data());
    return out;
  }
  std::vector<int32_t> out(2 * num_samples + 2);
  WalkSamples<int32_t>(config, out.data());
  return {out.begin(), out.end()};
}

// Each sample from the list of all tokens.
template <typename Length, typename Id>
void WalksEqualAListOfTokens() {
  uint64_t state = 5;
  for (int round = 0; round < 300; ++round) {
    std::vector<Length> lengths;
    for (uint64_t i = Random(&state) % 20 + 1; i > 0; --i) {
      lengths.push_back(static_cast<Length>(Random(&state) % 6));
    }
    std::vector<Id> ids;
    std::vector<std::pair<int64_t, int64_t>> tokens;
    for (uint64_t i = Random(&state) % 90; i > 0; --i) {
      const uint64_t id = Random(&state) % lengths.size();
      for (Length at = 0; at < lengths[id]; ++at) {
        tokens.emplace_back(ids.size(), at);
      }
      ids.push_back(static_cast<Id>(id));
    }
    const int64_t seq_length = 1 + static_cast<int64_t>(Random(&state) % 9);
    const int64_t extra = static_cast<int64_t>(Random(&state) % 2);
    const int64_t cuts =
        std::max<int64_t>(static_cast<int64_t>(tokens.size()) - extra, 0);
    const int64_t most = (cuts + seq_length - 1) / seq_length;
    for (const int64_t count : {most, cuts / seq_length, most / 2}) {
      std::vector<int64_t> expected = {0, 0};
      for (int64_t k = 1; k <= count; ++k) {
        const int64_t last =
            std::min<int64_t>(k * seq_length + extra, tokens.size()) - 1;
        expected.push_back(tokens[last].first);
        expected.push_back(tokens[last].second + 1 - extra);
      }
      CHECK(WalkOver(lengths, ids, seq_length, extra, count) == expected);
    }
    CHECK_THROWS(WalkOver(lengths, ids, seq_length, extra, most + 1),
                 std::invalid_argument, " samples of ");
  }
}

void WalksStayInsideTheLargestNumbers() {
  const std::vector<int64_t> lengths = {INT64_MAX, 0, INT64_MAX};
  const std::vector<int32_t> ids = {1, 0, 2, 1};
  // Far beyond an int32, far within the first document that has tokens.
  CHECK(WalkOver(lengths, ids, (int64_t{1} << 31) - 2, 1, 2) ==
        (std::vector<int64_t>{0, 0, 1, (int64_t{1} << 31) - 2, 1,
                              (int64_t{1} << 32) - 4}));
  CHECK_THROWS(WalkOver(lengths, ids, 1, 0, INT64_MAX),
               std::invalid_argument, "more than 4 documents can hold");
  const std::vector<int32_t> wild = {1, INT32_MIN, INT32_MAX};
  CHECK_THROWS(WalkOver(lengths, wild, 9, 1, 2), std::invalid_argument,
               "document_index[1] is -2147483648");
}

// An index over its own arrays.
struct Index {
  Index(const std::vector<int32_t>& documents,
        const std::vector<int64_t>& samples, const std::vector<uint32_t>& rows)
      : document_bytes(documents), sample_bytes(samples), row_bytes(rows) {
    index.document_index = {document_bytes.data(),
                            static_cast<int64_t>(documents.size()),
                            IntKind::kInt32};
    index.sample_index = {sample_bytes.data(),
                          static_cast<int64_t>(samples.size()),
                          IntKind::kInt64};
    index.shuffled = true;
    index.shuffle_index = {row_bytes.data(),
                           static_cast<int64_t>(rows.size()),
                           IntKind::kUint32};
  }
  OddBytes document_bytes;
  OddBytes sample_bytes;
  OddBytes row_bytes;
  MegatronRows index;
};

// Rows of many more documents than are asked for ahead, in many groups; the
// tokens of a pair count up, so that a row can be read off.
void PlansHoldTheTokensInOrder() {
  uint64_t state = 6;
  std::vector<int32_t> lengths;
  for (int i = 0; i < 500; ++i) {
    lengths.push_back(static_cast<int32_t>(Random(&state) % 3));
  }
  const Pair pair(lengths);
  std::vector<int32_t> documents(500);
  std::iota(documents.begin(), documents.end(), 0);
  for (uint64_t i = 499; i > 0; --i) {
    std::swap(documents[i], documents[Random(&state) % (i + 1)]);
  }
  std::vector<int64_t> tokens;
  for (const int32_t document : documents) {
    const int64_t begin = pair.file.Pointer(document) / 2;
    for (int32_t i = 0; i < lengths[document]; ++i) tokens.push_back(begin + i);
  }
  for (const int64_t seq_length : {1, 4, 150}) {
    for (const int64_t extra : {0, 1}) {
      const int64_t cuts = static_cast<int64_t>(tokens.size()) - extra;
      const int64_t count = (cuts + seq_length - 1) / seq_length;
      std::vector<uint32_t> order(count);
      std::iota(order.rbegin(), order.rend(), 0);
      Index own(documents,
                WalkOver(lengths, documents, seq_length, extra, count), order);
      own.index.seq_length = seq_length;
      own.index.extra = extra;
      std::vector<int64_t> rows(count);
      std::iota(rows.begin(), rows.end(), 0);
      const RowPlans plans =
          PlanSamples(pair.file, own.index, {rows.data(), count}, 7);
      for (int64_t r = 0; r < count; ++r) {
        std::vector<int64_t> read;
        for (int64_t p = plans.row_splits[r]; p < plans.row_splits[r + 1];
             ++p) {
          CHECK(plans.source[p] == 7);
          const int64_t begin =
              pair.file.Pointer(plans.sequence[p]) / 2 + plans.offset[p];
          for (int64_t i = 0; i < plans.length[p]; ++i) {
            read.push_back(begin + i);
          }
        }
        const int64_t begin = int64_t{order[r]} * seq_length;
        const int64_t end = std::min<int64_t>(begin + seq_length + extra,
                                              tokens.size());
        CHECK(read == std::vector<int64_t>(tokens.begin() + begin,
                                           tokens.begin() + end));
      }
    }
  }
}

// Whatever the arrays hold, nothing outside them is read.
void WildIndicesAreRefused() {
  const Pair pair({3, 0, 2, 4});
  const std::vector<int64_t> rows = {0, 1};
  const int64_t wild[] = {INT64_MIN, -1, 0, 1, 5, INT32_MAX, INT64_MAX};
  int refused = 0;
  for (size_t place = 0; place < 6; ++place) {
    for (const int64_t value : wild) {
      std::vector<int64_t> samples = {0, 0, 1, 1, 3, 0};
      samples[place] = value;
      Index own({2, 3, 1, 0}, samples, {1, 0});
      own.index.seq_length = 3;
      own.index.extra = 1;
      try {
        PlanSamples(pair.file, own.index, {rows.data(), 2}, 0);
      } catch (const std::invalid_argument&) {
        ++refused;
      }
    }
  }
  // Each place allows its own value, the last one also shorter ends.
  CHECK(refused >= 6 * 7 - 9 && refused < 6 * 7 - 4);
  for (const int64_t row : {int64_t{2}, int64_t{-1}, INT64_MAX}) {
    Index own({2, 3, 1, 0}, {0, 0, 1, 1, 3, 0}, {1, 0});
    own.index.seq_length = 3;
    own.index.extra = 1;
    CHECK_THROWS(PlanSamples(pair.file, own.index, {&row, 1}, 0),
                 std::out_of_range, "the index has 2 rows");
  }
}

}  // namespace
}  // namespace hpgrain

int main() {
  hpgrain::WalksEqualAListOfTokens<int32_t, int32_t>();
  hpgrain::WalksEqualAListOfTokens<int32_t, int64_t>();
  hpgrain::WalksEqualAListOfTokens<int64_t, int32_t>();
  hpgrain::WalksEqualAListOfTokens<int64_t, int64_t>();
  hpgrain::WalksStayInsideTheLargestNumbers();
  hpgrain::PlansHoldTheTokensInOrder();
  hpgrain::WildIndicesAreRefused();
  return Failures() != 0;
}
