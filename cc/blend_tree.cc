#include "blend_tree.h"

#include <algorithm>
#include <utility>

#include "errors.h"

namespace hpgrain {
namespace {

using uint128 = unsigned __int128;

// The rows sent left by the first n, and what the division left over.
struct Share {
  uint64_t left;
  uint64_t remainder;
};

// (2nL + T) / (2T) for any n: 2nL + T < 2^127 + 2^63.
Share DivideExactly(uint64_t n, uint64_t two_left, uint64_t two_total) {
  const uint128 numerator = uint128{n} * two_left + two_total / 2;
  const uint128 quotient = numerator / two_total;
  return {static_cast<uint64_t>(quotient),
          static_cast<uint64_t>(numerator - quotient * two_total)};
}

// The same where n < 2^51 and T < 2^61: the estimate is off by at most one,
// so the remainder lies in [-2T, 4T), fits 63 bits, and arithmetic modulo
// 2^64 finds it.
inline Share DivideByEstimate(uint64_t n, uint64_t two_left,
                              uint64_t two_total, double ratio) {
  uint64_t left = static_cast<uint64_t>(
      static_cast<int64_t>(static_cast<double>(static_cast<int64_t>(n)) *
                               ratio + 0.5));
  int64_t remainder = static_cast<int64_t>(
      n * two_left + two_total / 2 - left * two_total);
  const int64_t total = static_cast<int64_t>(two_total);
  const int64_t below = remainder < 0;
  const int64_t above = remainder >= total;
  left += static_cast<uint64_t>(above - below);
  remainder += (below - above) * total;
  return {left, static_cast<uint64_t>(remainder)};
}

}  // namespace

BlendTree::BlendTree(Span<const int32_t> children,
                     Span<const uint64_t> weights, int64_t num_sources)
    : num_sources_(num_sources), estimate_limit_(int64_t{1} << 51) {
  if (num_sources < 1 || num_sources > (int64_t{1} << 31)) {
    ThrowInvalid("a blend of ", num_sources,
                 " sources; there must be from 1 to 2**31.");
  }
  const int64_t num_nodes = num_sources - 1;
  if (children.size != 2 * num_nodes || weights.size != 2 * num_nodes) {
    ThrowInvalid("a blend tree over ", num_sources, " sources has ", num_nodes,
                 " nodes with two children and two weights each; got ",
                 children.size, " children and ", weights.size, " weights.");
  }
  nodes_.resize(num_nodes);
  std::vector<char> node_seen(num_nodes, 0);
  std::vector<char> source_seen(num_sources, 0);
  for (int64_t i = 0; i < num_nodes; ++i) {
    const uint64_t left = weights[2 * i];
    const uint64_t right = weights[2 * i + 1];
    uint64_t total = 0;
    if (left == 0 || right == 0 ||
        __builtin_add_overflow(left, right, &total) || total >> 63) {
      ThrowInvalid("node ", i, " has the weights ", left, " and ", right,
                   "; both must be positive and their sum below 2**63.");
    }
    for (int side = 0; side < 2; ++side) {
      const int64_t child = children[2 * i + side];
      const bool is_node = child >= 0;
      const int64_t index = is_node ? child : -child - 1;
      auto& seen = is_node ? node_seen : source_seen;
      if (index >= static_cast<int64_t>(seen.size()) || seen[index] ||
          (is_node && index == 0)) {
        ThrowInvalid("node ", i, " has the child ", child,
                     "; each of the nodes 1 to ", num_nodes - 1,
                     " and each source ~0 to ~", num_sources - 1,
                     " must be a child once.");
      }
      seen[index] = 1;
    }
    Node& node = nodes_[i];
    node.ratio = static_cast<double>(left) / static_cast<double>(total);
    node.two_left = 2 * left;
    node.two_total = 2 * total;
    node.child[0] = children[2 * i + 1];
    node.child[1] = children[2 * i];
    if (total >> 61) estimate_limit_ = 0;
  }
  // Each child once is not yet one tree: a ring apart from the root would
  // pass. Descending from the root must reach every node.
  std::vector<int32_t> waiting;
  if (num_nodes > 0) waiting.push_back(0);
  int64_t reached = 0;
  while (!waiting.empty()) {
    const Node& node = nodes_[waiting.back()];
    waiting.pop_back();
    ++reached;
    for (const int32_t child : node.child) {
      if (child >= 0) waiting.push_back(child);
    }
  }
  if (reached != num_nodes) {
    ThrowInvalid("only ", reached, " of ", num_nodes,
                 " nodes can be reached from the root, node 0.");
  }
}

void BlendTree::Locate(Span<const int64_t> positions, Span<int32_t> source,
                       Span<int64_t> k) const {
  const int32_t root = nodes_.empty() ? -1 : 0;
  const Node* const nodes = nodes_.data();
  for (int64_t i = 0; i < positions.size; ++i) {
    if (positions[i] < 0) {
      ThrowOutOfRange("positions[", i, "] is ", positions[i],
                      "; positions of a blend count from 0.");
    }
    uint64_t n = static_cast<uint64_t>(positions[i]);
    const bool estimate = positions[i] < estimate_limit_;
    int32_t at = root;
    while (at >= 0) {
      const Node& node = nodes[at];
      const Share share =
          estimate ? DivideByEstimate(n, node.two_left, node.two_total,
                                      node.ratio)
                   : DivideExactly(n, node.two_left, node.two_total);
      // One row more adds 2L to the remainder; past 2T it went left.
      const bool left =
          share.remainder >= node.two_total - node.two_left;
      n = left ? share.left : n - share.left;
      at = node.child[left];
    }
    source[i] = ~at;
    k[i] = static_cast<int64_t>(n);
  }
}

void BlendTree::Counts(int64_t position, Span<int64_t> counts) const {
  if (position < 0) {
    ThrowOutOfRange("position is ", position,
                    "; positions of a blend count from 0.");
  }
  std::vector<std::pair<int32_t, uint64_t>> waiting;
  waiting.emplace_back(nodes_.empty() ? -1 : 0,
                       static_cast<uint64_t>(position));
  while (!waiting.empty()) {
    const auto [at, n] = waiting.back();
    waiting.pop_back();
    if (at < 0) {
      counts[~at] = static_cast<int64_t>(n);
      continue;
    }
    const Node& node = nodes_[at];
    const Share share = DivideExactly(n, node.two_left, node.two_total);
    waiting.emplace_back(node.child[1], share.left);
    waiting.emplace_back(node.child[0], n - share.left);
  }
}

}  // namespace hpgrain
