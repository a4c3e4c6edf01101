// The permutation and the blend: bijective, exact, and safe at the ends.

#include <cstdint>
#include <stdexcept>
#include <vector>

#include "blend_tree.h"
#include "check.h"
#include "feistel.h"

namespace hpgrain {
namespace {

void PermutationIsOneToOne() {
  for (const int64_t size : {1, 2, 3, 16, 17, 255, 256, 257, 4097}) {
    const Permutation permutation(size, {7, 11});
    std::vector<int> seen(size, 0);
    for (int64_t i = 0; i < size; ++i) {
      const int64_t place = permutation(i);
      CHECK(place >= 0 && place < size);
      ++seen[place];
    }
    for (const int count : seen) CHECK(count == 1);
  }
}

void PermutationStaysInsideTheLargestSize() {
  const int64_t size = Permutation::kMaxSize;
  const Permutation permutation(size, {~uint64_t{0}, ~uint64_t{0}});
  for (int64_t i = 0; i < 1000; ++i) {
    const int64_t place = permutation(size - 1 - i);
    CHECK(place >= 0 && place < size);
  }
  CHECK_THROWS(Permutation(0, {}), std::invalid_argument, "cannot permute 0");
  CHECK_THROWS(Permutation(size + 1, {}), std::invalid_argument, "2**62");
}

// Walks the rule in 128-bit integers.
void BlendIsExactEverywhere() {
  const std::vector<int32_t> children = {1, ~2, ~0, ~1};
  for (const uint64_t scale :
       {uint64_t{1}, uint64_t{1} << 38, (uint64_t{1} << 60) - 1}) {
    const std::vector<uint64_t> weights = {3 * scale, 2 * scale, scale,
                                           2 * scale};
    const BlendTree tree({children.data(), 4}, {weights.data(), 4}, 3);
    for (const int64_t base :
         {int64_t{0}, (int64_t{1} << 51) - 20, (int64_t{1} << 53) - 20,
          INT64_MAX - 39}) {
      std::vector<int64_t> positions;
      for (int64_t i = 0; i < 40; ++i) positions.push_back(base + i);
      std::vector<int32_t> source(40);
      std::vector<int64_t> k(40);
      tree.Locate({positions.data(), 40}, {source.data(), 40},
                  {k.data(), 40});
      for (int i = 0; i < 40; ++i) {
        std::vector<int64_t> counts(3);
        tree.Counts(positions[i], {counts.data(), 3});
        CHECK(counts[0] + counts[1] + counts[2] == positions[i]);
        CHECK(counts[source[i]] == k[i]);
      }
    }
  }
}

void BlendRefusesWhatIsNoTree() {
  const std::vector<uint64_t> ones = {1, 1, 1, 1};
  const auto make = [&](std::vector<int32_t> children, int64_t sources) {
    const int64_t size = static_cast<int64_t>(children.size());
    BlendTree({children.data(), size}, {ones.data(), size}, sources);
  };
  CHECK_THROWS(make({~0, ~1}, 3), std::invalid_argument, "2 nodes");
  CHECK_THROWS(make({~0, ~0}, 2), std::invalid_argument, "the child -1");
  CHECK_THROWS(make({INT32_MAX, ~1}, 2), std::invalid_argument, "the child");
  CHECK_THROWS(make({INT32_MIN, ~1}, 2), std::invalid_argument, "the child");
  CHECK_THROWS(make({~0, ~1, 1, ~2}, 3), std::invalid_argument, "reached");
}

}  // namespace
}  // namespace hpgrain

int main() {
  hpgrain::PermutationIsOneToOne();
  hpgrain::PermutationStaysInsideTheLargestSize();
  hpgrain::BlendIsExactEverywhere();
  hpgrain::BlendRefusesWhatIsNoTree();
  return Failures() != 0;
}
