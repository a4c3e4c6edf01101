// The loops of blend_argmax.h over a vector type; for its .cc files alone.
//
// Each of those names its vector type in an anonymous namespace, so that what
// is made here for it stays in that file: two files compiled for different
// instruction sets must not share a function.

#ifndef HPGRAIN_BLEND_ARGMAX_LOOPS_H_
#define HPGRAIN_BLEND_ARGMAX_LOOPS_H_

#include <cstdint>
#include <limits>

#include "blend_argmax.h"

namespace hpgrain {

constexpr double kNever = std::numeric_limits<double>::infinity();

// max(t, 1), as the rule wants it.
template <typename V>
double BlendStep(int64_t t) {
  return static_cast<double>(t < 1 ? 1 : t);
}

// Makes the lanes up to `end` lose to every other.
template <typename V>
void FillLanes(const BlendLanes& lanes, int64_t end) {
  for (int64_t i = lanes.num_lanes; i < end; ++i) {
    lanes.weight[i] = 0;
    lanes.count[i] = kNever;
  }
}

// Writes row t from a source; returns whether that spends it.
template <typename V, typename Id>
bool WriteRow(const BlendSources& sources, int32_t id, int64_t t,
              const BlendRows<Id>& rows) {
  const int64_t sample = sources.drawn[id];
  sources.drawn[id] = sample + 1;
  rows.source[t] = static_cast<Id>(id);
  rows.sample[t] = sample;
  return sample + 1 == sources.limit[id];
}

// A window of kVectors vectors into this array has its one in any lane.
template <typename V>
struct OneHot {
  static constexpr int kLanes = V::kMaxVectors * V::kWidth;
  double values[2 * kLanes] = {};
  constexpr OneHot() { values[kLanes] = 1; }
  // Vector v of those whose lane `lane` is one.
  typename V::Vector Get(int lane, int v) const {
    return V::Load(values + kLanes - lane + v * V::kWidth);
  }
};

// All lanes in registers, as far as there are so many: a count that one step
// writes to memory piecemeal reaches the next one's vector late.
template <typename V, int kVectors, typename Id>
int64_t DrawFew(const BlendLanes& lanes, const BlendSources& sources,
                int64_t first, int64_t last, const BlendRows<Id>& rows,
                double* error) {
  static constexpr OneHot<V> kOneHot;
  using Vector = typename V::Vector;
  FillLanes<V>(lanes, kVectors * V::kWidth);
  Vector weight[kVectors];
  Vector count[kVectors];
  for (int v = 0; v < kVectors; ++v) {
    weight[v] = V::Load(lanes.weight + v * V::kWidth);
    count[v] = V::Load(lanes.count + v * V::kWidth);
  }
  Vector best = V::Set(0);
  int spent = -1;
  int64_t t = first;
  while (t < last && spent < 0) {
    const Vector step = V::Set(BlendStep<V>(t));
    Vector errors[kVectors];
    Vector maxima[kVectors];
    for (int v = 0; v < kVectors; ++v) {
      errors[v] = V::Sub(V::Mul(weight[v], step), count[v]);
      maxima[v] = errors[v];
    }
    for (int half = kVectors / 2; half > 0; half /= 2) {
      for (int v = 0; v < half; ++v) {
        maxima[v] = V::Max(maxima[v], maxima[v + half]);
      }
    }
    best = V::MaxOfLanes(maxima[0]);
    uint64_t bits = 0;
    for (int v = 0; v < kVectors; ++v) {
      bits |= V::Equal(errors[v], best) << (v * V::kWidth);
    }
    const int lane = __builtin_ctzll(bits);
    if ((bits & (bits - 1)) == 0) {
      for (int v = 0; v < kVectors; ++v) {
        count[v] = V::AddOneWhereEqual(count[v], errors[v], best);
      }
    } else {
      for (int v = 0; v < kVectors; ++v) {
        count[v] = V::Add(count[v], kOneHot.Get(lane, v));
      }
    }
    if (WriteRow<V>(sources, lanes.id[lane], t, rows)) spent = lane;
    ++t;
  }
  for (int v = 0; v < kVectors; ++v) {
    V::Store(lanes.count + v * V::kWidth, count[v]);
  }
  if (spent >= 0) lanes.count[spent] = kNever;
  *error = V::First(best);
  return t;
}

// Any number of lanes: finds the first block that holds the largest error,
// then the lane in it.
template <typename V, typename Id>
int64_t DrawMany(const BlendLanes& lanes, const BlendSources& sources,
                 int64_t first, int64_t last, const BlendRows<Id>& rows,
                 double* error) {
  using Vector = typename V::Vector;
  constexpr int kVectors = 8;
  constexpr int64_t kBlock = kVectors * V::kWidth;
  static_assert(kLaneBlock % kBlock == 0);
  const int64_t end = (lanes.num_lanes + kBlock - 1) / kBlock * kBlock;
  FillLanes<V>(lanes, end);
  int64_t t = first;
  bool spent = false;
  while (t < last && !spent) {
    const Vector step = V::Set(BlendStep<V>(t));
    const auto error_of = [&](int64_t i) {
      return V::Sub(V::Mul(V::Load(lanes.weight + i), step),
                    V::Load(lanes.count + i));
    };
    Vector best = V::Set(-kNever);
    int64_t block = 0;
    for (int64_t i = 0; i < end; i += kBlock) {
      Vector maximum = error_of(i);
      for (int v = 1; v < kVectors; ++v) {
        maximum = V::Max(maximum, error_of(i + v * V::kWidth));
      }
      if (V::AnyAbove(maximum, best)) {
        best = V::MaxOfLanes(maximum);
        block = i;
      }
    }
    uint64_t bits = 0;
    for (int v = 0; v < kVectors; ++v) {
      bits |= V::Equal(error_of(block + v * V::kWidth), best)
              << (v * V::kWidth);
    }
    const int64_t lane = block + __builtin_ctzll(bits);
    spent = WriteRow<V>(sources, lanes.id[lane], t, rows);
    lanes.count[lane] = spent ? kNever : lanes.count[lane] + 1;
    *error = V::First(best);
    ++t;
  }
  return t;
}

// The same one lane after the other, which is best for vectors of one.
template <typename V, typename Id>
int64_t DrawInTurn(const BlendLanes& lanes, const BlendSources& sources,
                   int64_t first, int64_t last, const BlendRows<Id>& rows,
                   double* error) {
  int64_t t = first;
  bool spent = false;
  while (t < last && !spent) {
    const double step = BlendStep<V>(t);
    double best = lanes.weight[0] * step - lanes.count[0];
    int64_t lane = 0;
    for (int64_t i = 1; i < lanes.num_lanes; ++i) {
      const double other = lanes.weight[i] * step - lanes.count[i];
      lane = other > best ? i : lane;
      best = other > best ? other : best;
    }
    spent = WriteRow<V>(sources, lanes.id[lane], t, rows);
    lanes.count[lane] = spent ? kNever : lanes.count[lane] + 1;
    *error = best;
    ++t;
  }
  return t;
}

// Takes as few vectors, a power of two, as hold the lanes.
template <typename V, typename Id, int kVectors = 1>
int64_t Draw(const BlendLanes& lanes, const BlendSources& sources,
             int64_t first, int64_t last, const BlendRows<Id>& rows,
             double* error) {
  if (lanes.num_lanes <= kVectors * V::kWidth) {
    return DrawFew<V, kVectors>(lanes, sources, first, last, rows, error);
  }
  if constexpr (2 * kVectors <= V::kMaxVectors) {
    return Draw<V, Id, 2 * kVectors>(lanes, sources, first, last, rows,
                                     error);
  } else if constexpr (V::kWidth == 1) {
    return DrawInTurn<V>(lanes, sources, first, last, rows, error);
  } else {
    return DrawMany<V>(lanes, sources, first, last, rows, error);
  }
}

template <typename V>
void Mark(const BlendLanes& lanes, int64_t now, int64_t later, double bound,
          uint64_t* at_now, uint64_t* at_later) {
  using Vector = typename V::Vector;
  const Vector now_step = V::Set(BlendStep<V>(now));
  const Vector later_step = V::Set(BlendStep<V>(later));
  const Vector bounds = V::Set(bound);
  const int64_t words = (lanes.num_lanes + kLaneBlock - 1) / kLaneBlock;
  FillLanes<V>(lanes, words * kLaneBlock);
  for (int64_t word = 0; word < words; ++word) {
    uint64_t now_bits = 0;
    uint64_t later_bits = 0;
    for (int64_t i = 0; i < kLaneBlock; i += V::kWidth) {
      const int64_t lane = word * kLaneBlock + i;
      const Vector weight = V::Load(lanes.weight + lane);
      const Vector count = V::Load(lanes.count + lane);
      now_bits |= V::AtLeast(V::Sub(V::Mul(weight, now_step), count), bounds)
                  << i;
      later_bits |=
          V::AtLeast(V::Sub(V::Mul(weight, later_step), count), bounds) << i;
    }
    at_now[word] = now_bits;
    at_later[word] = later_bits;
  }
}

template <typename V>
constexpr BlendArgmax kBlendArgmax = {V::kFew, &Mark<V>, &Draw<V, int16_t>,
                                      &Draw<V, int32_t>};

}  // namespace hpgrain

#endif  // HPGRAIN_BLEND_ARGMAX_LOOPS_H_
