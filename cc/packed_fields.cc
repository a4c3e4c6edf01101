#include "packed_fields.h"

#include <algorithm>

#include "clones.h"
#include "errors.h"

namespace hpgrain {
namespace {

void CheckPart(const char* what, int64_t piece, int64_t begin, int64_t length,
               int64_t size) {
  if (begin < 0 || begin > size || length > size - begin) {
    ThrowInvalid("piece ", piece, " takes ", length, " ", what, " from ", begin,
                 " on; there are ", size, ".");
  }
}

void Check(const PackedInput& in, const PackedConfig& config,
           const FieldsOutput& out) {
  constexpr int64_t kMaxPosition = (int64_t{1} << 31) - 1;
  if (config.begin < 0 || config.end < config.begin ||
      config.end > kMaxPosition) {
    ThrowInvalid("the window [", config.begin, ", ", config.end,
                 ") is no range of positions below 2**31.");
  }
  const int64_t num_pieces = in.start.size;
  if (in.row_splits.size < 1 || in.row_splits[0] != 0 ||
      in.row_splits[in.num_rows()] != num_pieces) {
    ThrowInvalid("row_splits must go from 0 to the ", num_pieces, " pieces.");
  }
  if (in.length.size != num_pieces || in.id_begin.size != num_pieces ||
      in.label_begin.size != num_pieces) {
    ThrowInvalid("every array must hold one value a piece; there are ",
                 num_pieces, " pieces.");
  }
  if (in.weights.size != 0 && in.weights.size != in.labels.size) {
    ThrowInvalid("there are ", in.weights.size, " weights for ",
                 in.labels.size, " labels.");
  }
  const int64_t size = in.num_rows() * (config.end - config.begin);
  if (out.input_ids.size < size || out.labels.size < size ||
      out.position_ids.size < size || out.segment_ids.size < size ||
      out.loss_mask.size < size) {
    ThrowInvalid("the outputs must hold at least ", in.num_rows(), " rows of ",
                 config.end - config.begin, " positions.");
  }
  for (int64_t r = 0; r < in.num_rows(); ++r) {
    const int64_t from = in.row_splits[r];
    const int64_t to = in.row_splits[r + 1];
    if (from > to || to > num_pieces) {
      ThrowInvalid("row_splits must not fall; row ", r, " goes from ", from,
                   " to ", to, ".");
    }
    int64_t free = 0;
    for (int64_t p = from; p < to; ++p) {
      const int64_t start = in.start[p];
      const int64_t length = in.length[p];
      if (length < 0 || start < free || start > kMaxPosition - length) {
        ThrowInvalid("piece ", p, " of row ", r, " takes ", length,
                     " positions from ", start, " on; the row is free from ",
                     free, " on.");
      }
      free = start + length;
      const int64_t first = std::max(start, config.begin);
      const int64_t count = std::min(free, config.end) - first;
      if (count <= 0) continue;
      CheckPart("ids", p, in.id_begin[p], count, in.ids.size);
      CheckPart("labels", p, in.label_begin[p], count, in.labels.size);
    }
  }
}

HPGRAIN_CLONES
void CountUp(int32_t first, int64_t count, int32_t* out) {
  for (int64_t i = 0; i < count; ++i) {
    out[i] = first + static_cast<int32_t>(i);
  }
}

// `weights` may be null: all 1.
HPGRAIN_CLONES
void WeighLoss(const int32_t* labels, const float* weights, int64_t count,
               float* out) {
  if (weights == nullptr) {
    for (int64_t i = 0; i < count; ++i) out[i] = labels[i] >= 0 ? 1.0f : 0.0f;
    return;
  }
  for (int64_t i = 0; i < count; ++i) {
    out[i] = labels[i] >= 0 ? weights[i] : 0.0f;
  }
}

HPGRAIN_CLONES
void MaskId(const int32_t* ids, int32_t masked, int64_t count, float* out) {
  for (int64_t i = 0; i < count; ++i) {
    if (ids[i] == masked) out[i] = 0.0f;
  }
}

struct Row {
  int32_t* input_ids;
  int32_t* labels;
  int32_t* position_ids;
  int32_t* segment_ids;
  float* loss_mask;
};

// Makes positions [from, to) of a row padding, as far as they lie in the
// window. It counts from where it begins.
void Pad(int64_t from, int64_t to, const PackedConfig& config,
         const Row& row) {
  const int64_t first = std::max(from, config.begin);
  const int64_t count = std::min(to, config.end) - first;
  if (count <= 0) return;
  const int64_t at = first - config.begin;
  std::fill_n(row.input_ids + at, count, 0);
  std::fill_n(row.labels + at, count, kIgnoreIndex);
  std::fill_n(row.segment_ids + at, count, 0);
  std::fill_n(row.loss_mask + at, count, 0.0f);
  if (config.reset_position_ids) {
    CountUp(static_cast<int32_t>(first - from), count, row.position_ids + at);
  }
}

// Places piece `p`, the `segment`th of its row, as far as it lies in the
// window.
void Place(const PackedInput& in, int64_t p, int64_t segment,
           const PackedConfig& config, const Row& row) {
  const int64_t start = in.start[p];
  const int64_t first = std::max(start, config.begin);
  const int64_t count = std::min(start + in.length[p], config.end) - first;
  if (count <= 0) return;
  const int64_t at = first - config.begin;
  std::copy_n(in.ids.data + in.id_begin[p], count, row.input_ids + at);
  std::copy_n(in.labels.data + in.label_begin[p], count, row.labels + at);
  std::fill_n(row.segment_ids + at, count,
              config.reset_attention_mask ? static_cast<int32_t>(segment) : 1);
  if (config.reset_position_ids) {
    CountUp(static_cast<int32_t>(first - start), count,
            row.position_ids + at);
  }
  WeighLoss(row.labels + at,
            in.weights.size == 0 ? nullptr
                                 : in.weights.data + in.label_begin[p],
            count, row.loss_mask + at);
  constexpr int64_t kMaxId = (int64_t{1} << 31) - 1;
  if (config.eod_id >= 0 && config.eod_id <= kMaxId) {
    MaskId(row.input_ids + at, static_cast<int32_t>(config.eod_id), count,
           row.loss_mask + at);
  }
}

}  // namespace

void MakePackedFields(const PackedInput& in, const PackedConfig& config,
                      const FieldsOutput& out) {
  Check(in, config, out);
  const int64_t width = config.end - config.begin;
  if (width == 0) return;
  for (int64_t r = 0; r < in.num_rows(); ++r) {
    const int64_t at = r * width;
    const Row row = {out.input_ids.data + at, out.labels.data + at,
                     out.position_ids.data + at, out.segment_ids.data + at,
                     out.loss_mask.data + at};
    if (!config.reset_position_ids) {
      CountUp(static_cast<int32_t>(config.begin), width, row.position_ids);
    }
    int64_t done = 0;
    for (int64_t p = in.row_splits[r]; p < in.row_splits[r + 1]; ++p) {
      Pad(done, in.start[p], config, row);
      Place(in, p, p - in.row_splits[r] + 1, config, row);
      done = in.start[p] + in.length[p];
    }
    Pad(done, config.end, config, row);
  }
}

}  // namespace hpgrain
