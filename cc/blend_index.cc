#include "blend_index.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "errors.h"

namespace hpgrain {
namespace {

constexpr int64_t kMaxSources = (int64_t{1} << 31) - 1;
constexpr int64_t kMaxRows = int64_t{1} << 62;
constexpr double kSpent = std::numeric_limits<double>::infinity();

void CheckNumSources(int64_t num_sources, const char* what) {
  if (num_sources < 1 || num_sources > kMaxSources) {
    ThrowInvalid("a blend of ", num_sources, " ", what,
                 "; there must be from 1 to 2**31 - 1, one a source.");
  }
}

DrawFunction<int16_t> DrawOf(const BlendArgmax& argmax, int16_t) {
  return argmax.draw16;
}

DrawFunction<int32_t> DrawOf(const BlendArgmax& argmax, int32_t) {
  return argmax.draw32;
}

// Lanes and the memory behind them.
class LaneArrays {
 public:
  explicit LaneArrays(int64_t num_lanes)
      : weight_(RoundUp(num_lanes)),
        count_(RoundUp(num_lanes)),
        id_(RoundUp(num_lanes)) {}

  BlendLanes First(int64_t num_lanes) {
    return {weight_.data(), count_.data(), id_.data(), num_lanes};
  }

  void Put(int64_t lane, int32_t id, double weight, double count) {
    weight_[lane] = weight;
    count_[lane] = count;
    id_[lane] = id;
  }

 private:
  static int64_t RoundUp(int64_t n) {
    return (n + kLaneBlock - 1) / kLaneBlock * kLaneBlock;
  }

  std::vector<double> weight_;
  std::vector<double> count_;
  std::vector<int32_t> id_;
};

// Draws from many sources by looking at few of them.
//
// Rounding keeps order, so the error of a source that is not drawn never
// falls from a step to the next. Let m sources have an error of at least B
// now. Before any of the next m steps fewer than m rows were drawn, so one of
// the m was not, and the largest error is at least B. A source whose error
// at the last of those steps would still be below B, were it not drawn, is
// below B at all of them: it neither wins nor ties. So the steps go over the
// others alone, which stay in the order of their ids. Being spent is an
// error of minus infinity after a draw, which changes nothing of this.
//
// Any B gives the right rows. A good one lies so little below the largest
// error that m is about `steps_`, and then about twice as many sources reach
// B in that time.
class Windows {
 public:
  Windows(LaneArrays* all, int64_t num_sources)
      : all_(all->First(num_sources)),
        near_(num_sources),
        at_now_((num_sources + kLaneBlock - 1) / kLaneBlock),
        at_later_(at_now_.size()),
        // Measured: more steps save marking but make each one longer.
        steps_(num_sources <= 512 ? 12 : 24),
        gap_(static_cast<double>(steps_) / static_cast<double>(num_sources)) {}

  template <typename Id>
  void Draw(const BlendArgmax& argmax, const BlendSources& sources,
            int64_t size, const BlendRows<Id>& rows) {
    const auto draw = DrawOf(argmax, Id{});
    double error = 0;
    int64_t t = draw(all_, sources, 0, 1, rows, &error);
    while (t < size) {
      const int64_t end = std::min(t + steps_, size);
      argmax.mark(all_, t, end - 1, error - gap_, at_now_.data(),
                  at_later_.data());
      int64_t num_at_bound = 0;
      for (const uint64_t bits : at_now_) {
        num_at_bound += __builtin_popcountll(bits);
      }
      if (num_at_bound == 0) {
        t = draw(all_, sources, t, t + 1, rows, &error);
        Widen(2);
        continue;
      }
      const int64_t num_near = GatherNear();
      const BlendLanes near = near_.First(num_near);
      const int64_t stop = std::min(end, t + num_at_bound);
      while (t < stop) t = draw(near, sources, t, stop, rows, &error);
      for (int64_t i = 0; i < num_near; ++i) {
        all_.count[near.id[i]] = near.count[i];
      }
      Widen(num_at_bound < steps_ ? 1.125 : 0.875);
    }
  }

 private:
  void Widen(double factor) {
    gap_ = std::clamp(gap_ * factor, 1e-300, 1e300);
  }

  // Lays out the sources that may win. Of those alike in weight and count
  // the first wins, so that steps_ steps reach no further than so many: a
  // longer run of them is cut, or half the sources of a blend of equal
  // weights would be near at a time.
  int64_t GatherNear() {
    int64_t num_near = 0;
    int64_t run = 0;
    const BlendLanes near = near_.First(0);
    for (size_t word = 0; word < at_later_.size(); ++word) {
      for (uint64_t bits = at_later_[word]; bits != 0; bits &= bits - 1) {
        const int64_t id = static_cast<int64_t>(word) * kLaneBlock +
                           __builtin_ctzll(bits);
        const double weight = all_.weight[id];
        const double count = all_.count[id];
        const bool alike = num_near > 0 &&
                           near.weight[num_near - 1] == weight &&
                           near.count[num_near - 1] == count;
        run = alike ? run + 1 : 1;
        if (run > steps_) continue;
        near_.Put(num_near, static_cast<int32_t>(id), weight, count);
        ++num_near;
      }
    }
    return num_near;
  }

  const BlendLanes all_;
  LaneArrays near_;
  std::vector<uint64_t> at_now_;
  std::vector<uint64_t> at_later_;
  const int64_t steps_;
  double gap_;  // from the last draw's error down to B
};

template <typename Id>
void Draw(LaneArrays* all, Span<const int64_t> limits, int64_t size, Isa isa,
          const BlendRows<Id>& rows) {
  if (size == 0) return;
  // Two numbers are compared sooner outside of vectors.
  const BlendArgmax& argmax =
      GetBlendArgmax(limits.size <= 2 ? Isa::kScalar : isa);
  std::vector<int64_t> drawn(limits.size);
  const BlendSources sources = {drawn.data(), limits.data};
  if (limits.size > argmax.few) {
    Windows(all, limits.size).Draw(argmax, sources, size, rows);
    return;
  }
  const BlendLanes lanes = all->First(limits.size);
  double error = 0;
  for (int64_t t = 0; t < size;) {
    t = DrawOf(argmax, Id{})(lanes, sources, t, size, rows, &error);
  }
}

}  // namespace

void CheckBlendWeights(Span<const double> weights, int64_t size) {
  CheckNumSources(weights.size, "weights");
  if (size < 0) {
    ThrowInvalid("a blend of ", size, " rows; there must be 0 or more.");
  }
  for (int64_t i = 0; i < weights.size; ++i) {
    if (!std::isfinite(weights[i]) || weights[i] <= 0) {
      ThrowInvalid("the weight of source ", i, " is ", weights[i],
                   "; weights must be finite and above 0. Leave out a source "
                   "that is not wanted.");
    }
  }
}

int64_t CheckBlendSizes(Span<const int64_t> sizes) {
  CheckNumSources(sizes.size, "sizes");
  int64_t total = 0;
  for (int64_t i = 0; i < sizes.size; ++i) {
    if (sizes[i] < 0) {
      ThrowInvalid("the size of source ", i, " is ", sizes[i],
                   "; sizes must be 0 or more.");
    }
    if (sizes[i] > kMaxRows - total) {
      ThrowInvalid("the sizes of sources 0 to ", i, " sum to more than 2**62 "
                   "rows, the most that a blend can have.");
    }
    total += sizes[i];
  }
  return total;
}

template <typename Id>
void BlendIndex(Span<const double> weights, int64_t size, Isa isa,
                const BlendRows<Id>& rows) {
  LaneArrays all(weights.size);
  for (int64_t i = 0; i < weights.size; ++i) {
    all.Put(i, static_cast<int32_t>(i), weights[i], 0);
  }
  const std::vector<int64_t> limits(weights.size,
                                    std::numeric_limits<int64_t>::max());
  Draw(&all, {limits.data(), weights.size}, size, isa, rows);
}

template <typename Id>
void ExhaustiveBlendIndex(Span<const int64_t> sizes, Isa isa,
                          const BlendRows<Id>& rows) {
  LaneArrays all(sizes.size);
  int64_t total = 0;
  for (const int64_t size : sizes) total += size;
  for (int64_t i = 0; i < sizes.size; ++i) {
    const bool spent = sizes[i] == 0;
    const double weight = spent ? 0
                                : static_cast<double>(sizes[i]) /
                                      static_cast<double>(total);
    all.Put(i, static_cast<int32_t>(i), weight, spent ? kSpent : 0);
  }
  Draw(&all, sizes, total, isa, rows);
}

template void BlendIndex(Span<const double>, int64_t, Isa,
                         const BlendRows<int16_t>&);
template void BlendIndex(Span<const double>, int64_t, Isa,
                         const BlendRows<int32_t>&);
template void ExhaustiveBlendIndex(Span<const int64_t>, Isa,
                                   const BlendRows<int16_t>&);
template void ExhaustiveBlendIndex(Span<const int64_t>, Isa,
                                   const BlendRows<int32_t>&);

}  // namespace hpgrain
