// Megatron's sample index: where, among documents laid end to end in a given
// order, each sample begins.

#ifndef HPGRAIN_SAMPLE_WALK_H_
#define HPGRAIN_SAMPLE_WALK_H_

#include <cstdint>

#include "int_array.h"

namespace hpgrain {

struct SampleWalkConfig {
  IntArray lengths;         // int32 or int64, tokens of each document
  IntArray document_index;  // int32 or int64, documents in reading order
  int64_t seq_length = 0;   // samples begin so many tokens apart
  int64_t extra = 0;        // 0 or 1; samples hold seq_length + extra tokens
  int64_t num_samples = 0;
};

// Returns whether the entries need int64: a place in document_index or a length
// does not fit into int32. Throws std::invalid_argument for numbers that no
// walk can have: a sample without tokens, or more samples than the documents
// can hold however long they are.
bool CheckSampleWalk(const SampleWalkConfig& config);

// Writes num_samples + 1 pairs (place in document_index, offset): of each
// sample's first token, then of the end. A sample that ends with its document
// keeps pointing at it. The last sample may be short if more tokens than the
// extra one are left for it; the end then lies in the last document that has
// any. Throws std::invalid_argument naming the place of a document that does
// not exist or has a negative length, or where the tokens run out.
// The rule is that of build_sample_idx in Megatron-core 0.16
// (megatron/core/datasets/helpers.cpp).
template <typename Out>
void WalkSamples(const SampleWalkConfig& config, Out* out);

extern template void WalkSamples<int32_t>(const SampleWalkConfig&, int32_t*);
extern template void WalkSamples<int64_t>(const SampleWalkConfig&, int64_t*);

}  // namespace hpgrain

#endif  // HPGRAIN_SAMPLE_WALK_H_
