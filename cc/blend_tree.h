// Which source, and which of its rows, stands at each position of a blend.
//
//            [root: L | R]         the first n rows that reach a node send
//             /         \          round(n * L / (L + R)) of them left, so
//       [L1 | R1]     source 2     every prefix is within a row or two of
//        /     \                   the weights, and any position is found
//   source 0  source 1             by descending: no arrays, no history

#ifndef HPGRAIN_BLEND_TREE_H_
#define HPGRAIN_BLEND_TREE_H_

#include <cstdint>
#include <vector>

#include "span.h"

namespace hpgrain {

class BlendTree {
 public:
  // `children` and `weights` hold (left, right) for each of num_sources - 1
  // nodes, node 0 being the root. A child c >= 0 is a node, c < 0 the source
  // ~c. Throws std::invalid_argument unless this is one tree that holds each
  // source once, with positive weights whose sum at each node is < 2**63.
  BlendTree(Span<const int32_t> children, Span<const uint64_t> weights,
            int64_t num_sources);

  // source[i], k[i] = whose row stands at positions[i], and which of its rows
  // (counted from 0). Throws std::out_of_range for a negative position.
  void Locate(Span<const int64_t> positions, Span<int32_t> source,
              Span<int64_t> k) const;

  // counts[s] = the rows of source s among the first `position`.
  void Counts(int64_t position, Span<int64_t> counts) const;

  int64_t num_sources() const { return num_sources_; }

 private:
  struct Node {
    double ratio;  // L / T, an estimate that exact arithmetic corrects.
    uint64_t two_left;
    uint64_t two_total;
    int32_t child[2];  // right, left: indexed by "goes left"
  };

  int64_t num_sources_;
  std::vector<Node> nodes_;
  // Below this position the estimate is off by less than one.
  int64_t estimate_limit_;
};

}  // namespace hpgrain

#endif  // HPGRAIN_BLEND_TREE_H_
