// Megatron's blend against the rule written down plainly, with every
// instruction set that this machine has.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <numeric>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "blend_index.h"
#include "check.h"
#include "isa.h"

namespace hpgrain {
namespace {

using Weights = std::vector<double>;
using Sizes = std::vector<int64_t>;

// Owns exactly the output's bytes, so that a sanitizer sees any overrun.
template <typename Id>
struct Output {
  explicit Output(int64_t size)
      : size(size), source(new Id[size]), sample(new int64_t[size]) {
    std::fill_n(source.get(), size, Id{-1});
    std::fill_n(sample.get(), size, -1);
  }
  BlendRows<Id> rows() const { return {source.get(), sample.get()}; }

  int64_t size;
  std::unique_ptr<Id[]> source;
  std::unique_ptr<int64_t[]> sample;
};

// The rule: among the sources below their limits the first with the largest
// w * max(t, 1) - c.
template <typename Id>
void CheckRows(const Output<Id>& got, const Weights& weights,
               const Sizes& limits, const std::string& what) {
  Sizes drawn(weights.size(), 0);
  for (int64_t t = 0; t < got.size; ++t) {
    const double step = static_cast<double>(std::max<int64_t>(t, 1));
    int64_t best = -1;
    double best_error = 0;
    for (size_t i = 0; i < weights.size(); ++i) {
      if (drawn[i] == limits[i]) continue;
      const double share = weights[i] * step;
      const double error = share - static_cast<double>(drawn[i]);
      if (best < 0 || error > best_error) {
        best = static_cast<int64_t>(i);
        best_error = error;
      }
    }
    if (got.source[t] != best || got.sample[t] != drawn[best]) {
      Check(false, (what + ", position " + std::to_string(t)).c_str(),
            __FILE__, __LINE__);
      return;
    }
    ++drawn[best];
  }
}

template <typename Id>
void BlendIsTheRule(const Weights& weights, int64_t size, const char* what) {
  const Span<const double> in = {weights.data(),
                                 static_cast<int64_t>(weights.size())};
  CheckBlendWeights(in, size);
  const Sizes limits(weights.size(), std::numeric_limits<int64_t>::max());
  for (const Isa isa : SupportedIsas()) {
    const Output<Id> out(size);
    BlendIndex(in, size, isa, out.rows());
    CheckRows(out, weights, limits,
              std::string(IsaName(isa)) + ", " + what + ", " +
                  std::to_string(weights.size()) + " sources");
  }
}

template <typename Id>
void ExhaustiveIsTheRule(const Sizes& sizes, const char* what) {
  const Span<const int64_t> in = {sizes.data(),
                                  static_cast<int64_t>(sizes.size())};
  const int64_t total = CheckBlendSizes(in);
  CHECK(total == std::accumulate(sizes.begin(), sizes.end(), int64_t{0}));
  Weights weights;
  for (const int64_t size : sizes) {
    weights.push_back(static_cast<double>(size) / static_cast<double>(total));
  }
  for (const Isa isa : SupportedIsas()) {
    const Output<Id> out(total);
    ExhaustiveBlendIndex(in, isa, out.rows());
    CheckRows(out, weights, sizes,
              std::string(IsaName(isa)) + ", exhaustive, " + what + ", " +
                  std::to_string(sizes.size()) + " sources");
  }
}

// Around each number of lanes at which another loop takes over.
const std::vector<int64_t> kCounts = {1,  2,  3,  4,  5,  8,  9,  16,  17,
                                      32, 33, 40, 41, 63, 64, 65, 129, 600};

void RandomBlendsAreTheRule() {
  std::mt19937_64 random(1);
  std::uniform_real_distribution<double> uniform(0.1, 1);
  std::lognormal_distribution<double> lognormal(0, 2);
  for (const int64_t n : kCounts) {
    const int64_t size = n < 100 ? 3000 : 1500;
    Weights even(n), skewed(n), tiny(n, 1e-6), near(n), huge(n);
    for (int64_t i = 0; i < n; ++i) {
      even[i] = uniform(random);
      skewed[i] = lognormal(random);
      near[i] = (1 + 1e-6 * uniform(random)) / static_cast<double>(n);
      huge[i] = 1e307 * (1 + static_cast<double>(i % 17));
    }
    tiny[n / 2] = 1;
    double sum = 0;
    for (const double weight : skewed) sum += weight;
    Weights normal = skewed;
    for (double& weight : normal) weight /= sum;
    BlendIsTheRule<int16_t>(normal, size, "normalised");
    BlendIsTheRule<int32_t>(normal, size, "int32 ids");
    BlendIsTheRule<int16_t>(even, size, "not normalised");
    BlendIsTheRule<int16_t>(skewed, size, "skewed");
    BlendIsTheRule<int16_t>(tiny, size, "1e-6");
    BlendIsTheRule<int16_t>(near, size, "nearly equal");
    BlendIsTheRule<int16_t>(huge, size, "overflowing");
    BlendIsTheRule<int16_t>(Weights(n, 1.0 / static_cast<double>(n)), size,
                            "equal");
    BlendIsTheRule<int16_t>(Weights(n, 5e-324), size, "denormal");
  }
}

void RandomExhaustiveBlendsAreTheRule() {
  std::mt19937_64 random(2);
  for (const int64_t n : kCounts) {
    Sizes small(n), mixed(n), one_large(n, 1);
    for (int64_t i = 0; i < n; ++i) {
      small[i] = static_cast<int64_t>(random() % 4);
      mixed[i] = static_cast<int64_t>(random() % (n < 100 ? 90 : 9));
    }
    one_large[n / 2] = 2000;
    ExhaustiveIsTheRule<int16_t>(small, "0 to 3");
    ExhaustiveIsTheRule<int16_t>(mixed, "mixed");
    ExhaustiveIsTheRule<int32_t>(mixed, "int32 ids");
    ExhaustiveIsTheRule<int16_t>(one_large, "one large");
    ExhaustiveIsTheRule<int16_t>(Sizes(n, 5), "equal");
    ExhaustiveIsTheRule<int16_t>(Sizes(n, 0), "empty");
    // In the middle no source is ahead, and the first has no rows.
    Sizes twos(n, 2);
    twos[0] = 0;
    ExhaustiveIsTheRule<int16_t>(twos, "twos after a 0");
  }
}

// The sizes of an exhaustive blend are in proportion to its weights, so that
// a source without rows is hardly ever ahead of the rest. Here they are not.
void SpentLanesLose() {
  for (const int64_t n : kCounts) {
    const int64_t padded = (n + kLaneBlock - 1) / kLaneBlock * kLaneBlock;
    Sizes limits(n, 5);
    limits[0] = 1;
    limits[n / 2] = 20;
    const int64_t total =
        std::accumulate(limits.begin(), limits.end(), int64_t{0});
    for (const Isa isa : SupportedIsas()) {
      Weights weights(padded);
      for (int64_t i = 0; i < n; ++i) {
        weights[i] = 1 / static_cast<double>(i + 2);
      }
      Weights counts(padded);
      std::vector<int32_t> ids(n);
      std::iota(ids.begin(), ids.end(), 0);
      Sizes drawn(n, 0);
      const Output<int16_t> out(total);
      double error = 0;
      for (int64_t t = 0; t < total;) {
        t = GetBlendArgmax(isa).draw16(
            {weights.data(), counts.data(), ids.data(), n},
            {drawn.data(), limits.data()}, t, total, out.rows(), &error);
      }
      CHECK(drawn == limits);
      weights.resize(n);
      CheckRows(out, weights, limits,
                std::string(IsaName(isa)) + ", limits, " + std::to_string(n) +
                    " sources");
    }
  }
}

void ManySourcesHaveWideIds() {
  Weights weights(40000, 1);
  weights[39999] = 2;
  const Output<int32_t> out(3);
  BlendIndex({weights.data(), 40000}, 3, Isa::kScalar, out.rows());
  CHECK(out.source[0] == 39999 && out.sample[0] == 0);
  CHECK(out.source[1] == 0 && out.sample[1] == 0);
  CHECK(out.source[2] == 39999 && out.sample[2] == 1);
}

void EmptyBlendsTouchNothing() {
  const Weights weights = {1, 1};
  BlendIndex<int16_t>({weights.data(), 2}, 0, Isa::kScalar, {});
  const Sizes sizes = {0, 0};
  CHECK(CheckBlendSizes({sizes.data(), 2}) == 0);
  ExhaustiveBlendIndex<int16_t>({sizes.data(), 2}, Isa::kScalar, {});
}

void WrongArgumentsThrow() {
  const auto weigh = [](Weights weights, int64_t size) {
    CheckBlendWeights({weights.data(), static_cast<int64_t>(weights.size())},
                      size);
  };
  using Error = std::invalid_argument;
  CHECK_THROWS(weigh({}, 1), Error, "a blend of 0 weights");
  CHECK_THROWS(weigh({1}, -1), Error, "a blend of -1 rows");
  CHECK_THROWS(weigh({1, 0}, 1), Error, "source 1 is 0");
  CHECK_THROWS(weigh({-0.5, 1}, 1), Error, "source 0 is -0.5");
  CHECK_THROWS(weigh({1, 1, NAN}, 1), Error, "source 2 is nan");
  CHECK_THROWS(weigh({INFINITY}, 1), Error, "source 0 is inf");
  // Refused before anything is read.
  CHECK_THROWS(CheckBlendWeights({nullptr, int64_t{1} << 31}, 1), Error,
               "a blend of 2147483648 weights");

  const auto total = [](Sizes sizes) {
    return CheckBlendSizes({sizes.data(), static_cast<int64_t>(sizes.size())});
  };
  CHECK_THROWS(total({}), Error, "a blend of 0 sizes");
  CHECK_THROWS(total({3, -1}), Error, "size of source 1 is -1");
  const int64_t most = int64_t{1} << 62;
  CHECK(total({most - 1, 1}) == most);
  CHECK_THROWS(total({most, 1}), Error, "sources 0 to 1 sum to more");
  CHECK_THROWS(total({0, INT64_MAX}), Error, "sources 0 to 1 sum to more");
  CHECK_THROWS(CheckBlendSizes({nullptr, int64_t{1} << 31}), Error,
               "a blend of 2147483648 sizes");
}

void NamesChooseInstructionSets() {
  const auto isas = SupportedIsas();
  CHECK(isas.front() == Isa::kScalar);
  for (const Isa isa : isas) CHECK(ChooseIsa(IsaName(isa)) == isa);
  CHECK(ChooseIsa(nullptr) == isas.back());
  CHECK(ChooseIsa("") == isas.back());
  CHECK_THROWS(ChooseIsa("sse"), std::invalid_argument,
               "\"sse\"; this machine has scalar");
  for (const Isa isa : {Isa::kAvx2, Isa::kAvx512}) {
    if (std::find(isas.begin(), isas.end(), isa) != isas.end()) continue;
    CHECK_THROWS(ChooseIsa(IsaName(isa)), std::invalid_argument,
                 "this machine has scalar");
  }
}

}  // namespace
}  // namespace hpgrain

int main() {
  hpgrain::RandomBlendsAreTheRule();
  hpgrain::RandomExhaustiveBlendsAreTheRule();
  hpgrain::SpentLanesLose();
  hpgrain::ManySourcesHaveWideIds();
  hpgrain::EmptyBlendsTouchNothing();
  hpgrain::WrongArgumentsThrow();
  hpgrain::NamesChooseInstructionSets();
  return Failures() != 0;
}
