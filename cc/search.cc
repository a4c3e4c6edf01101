#include "search.h"

#include <algorithm>
#include <cstring>

namespace hpgrain {
namespace {

inline int64_t Load(const uint8_t* values, int64_t i) {
  return LoadUnaligned<int64_t>(values, i);
}

inline void Prefetch(const uint8_t* values, int64_t i) {
  __builtin_prefetch(values + i * 8);
}

// What is known of one target: values[low] <= target (or low is the first),
// values[high] > target (or high is one past the last), and the next guess.
struct State {
  int64_t low;
  int64_t high;
  int64_t guess;
  int64_t last_guess;
  int64_t last_value;
};

int64_t Clamp(double guess, int64_t low, int64_t high) {
  // Also takes the NaN and the infinities of a flat stretch.
  if (!(guess > static_cast<double>(low))) return low;
  if (!(guess < static_cast<double>(high))) return high;
  return std::min(std::max(static_cast<int64_t>(guess), low), high);
}

// Doubles the step from the guess until it has passed the target, then
// halves the bracket.
int64_t Finish(const uint8_t* values, int64_t target, State s) {
  int64_t step = 1;
  if (s.last_guess == s.low) {
    while (s.high - s.low > step && Load(values, s.low + step) <= target) {
      s.low += step;
      step *= 2;
    }
    s.high = std::min(s.high, s.low + std::min(step, s.high - s.low));
  } else {
    while (s.high - s.low > step && Load(values, s.high - step) > target) {
      s.high -= step;
      step *= 2;
    }
    s.low = std::max(s.low, s.high - std::min(step, s.high - s.low));
  }
  while (s.high - s.low > 1) {
    const int64_t middle = s.low + (s.high - s.low) / 2;
    if (Load(values, middle) <= target) {
      s.low = middle;
    } else {
      s.high = middle;
    }
  }
  return s.low;
}

}  // namespace

void FindLastAtMost(const uint8_t* values, int64_t begin, int64_t end,
                    Span<const int64_t> targets, Span<int64_t> out) {
  // Many targets advance together, so that their cache misses overlap. The
  // first guess is off by about the square root of the count, each further
  // one by about the square root of the miss before: after the rounds what
  // is left lies within a few cache lines.
  constexpr int64_t kGroup = 32;
  constexpr int kRounds = 3;
  State states[kGroup];

  const int64_t first = Load(values, begin);
  const double span = static_cast<double>(Load(values, end - 1)) -
                      static_cast<double>(first);
  const double per_value =
      span > 0 ? static_cast<double>(end - 1 - begin) / span : 0.0;

  for (int64_t group = 0; group < targets.size; group += kGroup) {
    const int64_t size = std::min(kGroup, targets.size - group);
    const int64_t* const target = targets.data + group;
    for (int64_t i = 0; i < size; ++i) {
      State& s = states[i];
      const double along =
          static_cast<double>(target[i]) - static_cast<double>(first);
      s.low = begin;
      s.high = end;
      s.guess = Clamp(static_cast<double>(begin) + along * per_value, begin,
                      end - 1);
      s.last_guess = begin;
      s.last_value = first;
      Prefetch(values, s.guess);
    }
    for (int round = 0; round < kRounds; ++round) {
      for (int64_t i = 0; i < size; ++i) {
        State& s = states[i];
        if (s.high - s.low <= 1) continue;
        const int64_t value = Load(values, s.guess);
        if (value <= target[i]) {
          s.low = s.guess;
        } else {
          s.high = s.guess;
        }
        // The slope where the search is, once two places near are known.
        const double rise = static_cast<double>(value) -
                            static_cast<double>(s.last_value);
        const double slope =
            round > 0 && rise != 0.0
                ? static_cast<double>(s.guess - s.last_guess) / rise
                : per_value;
        const double miss =
            static_cast<double>(target[i]) - static_cast<double>(value);
        s.last_guess = s.guess;
        s.last_value = value;
        if (s.high <= s.low) continue;
        s.guess = Clamp(static_cast<double>(s.guess) + miss * slope,
                        std::min(s.low + 1, s.high - 1), s.high - 1);
        Prefetch(values, s.guess);
      }
    }
    for (int64_t i = 0; i < size; ++i) {
      out[group + i] = Finish(values, target[i], states[i]);
    }
  }
}

int64_t FindFirstAtLeast(const uint8_t* values, int64_t begin, int64_t end,
                         int64_t target, int64_t guess) {
  // Invariant: values before `low` are less, those from `high` on are not.
  int64_t low = begin;
  int64_t high = end;
  guess = std::min(std::max(guess, begin), end);
  int64_t step = 1;
  if (guess < end && Load(values, guess) < target) {
    low = guess + 1;
    while (high - low > step && Load(values, low + step - 1) < target) {
      low += step;
      step *= 2;
    }
    high = low + std::min(step, high - low);
  } else {
    high = guess;
    while (high - low > step && Load(values, high - step) >= target) {
      high -= step;
      step *= 2;
    }
    low = high - std::min(step, high - low);
  }
  while (low < high) {
    const int64_t middle = low + (high - low) / 2;
    if (Load(values, middle) < target) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

}  // namespace hpgrain
