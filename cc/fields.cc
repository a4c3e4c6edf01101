#include "fields.h"

#include <algorithm>

#include "clones.h"
#include "errors.h"

namespace hpgrain {
namespace {

void Check(const FieldsInput& in, const FieldsConfig& config,
           const FieldsOutput& out) {
  constexpr int64_t kMaxPosition = (int64_t{1} << 31) - 1;
  if (config.begin < 0 || config.end < config.begin ||
      config.end > kMaxPosition || config.seq_length < 0) {
    ThrowInvalid("the window [", config.begin, ", ", config.end,
                 ") of rows of ", config.seq_length,
                 " positions is no range of positions below 2**31.");
  }
  const int64_t width = config.end - config.begin;
  if (in.token_width != width && in.token_width != width + 1) {
    ThrowInvalid("tokens have ", in.token_width, " columns; the window [",
                 config.begin, ", ", config.end, ") takes ", width, " or ",
                 width + 1, ".");
  }
  const int64_t size = in.num_rows * width;
  if (out.input_ids.size < size || out.labels.size < size ||
      out.position_ids.size < size || out.segment_ids.size < size ||
      out.loss_mask.size < size) {
    ThrowInvalid("the outputs must hold at least ", in.num_rows, " rows of ",
                 width, " positions.");
  }
  const int64_t num_starts = in.starts.size;
  if (in.row_splits.size != in.num_rows + 1 || in.lengths.size != in.num_rows ||
      in.row_splits[0] != 0 || in.row_splits[in.num_rows] != num_starts) {
    ThrowInvalid("segments must describe the ", in.num_rows,
                 " rows of tokens, with row_splits from 0 to ", num_starts,
                 "; got ", in.row_splits.size, " row_splits and ",
                 in.lengths.size, " lengths.");
  }
  for (int64_t r = 0; r < in.num_rows; ++r) {
    const int64_t from = in.row_splits[r];
    const int64_t to = in.row_splits[r + 1];
    if (from > to || to > num_starts) {
      ThrowInvalid("row_splits must not fall; row ", r, " goes from ", from,
                   " to ", to, ".");
    }
    const int64_t length = in.lengths[r];
    if (length < 0 || (length > 0 && (from == to || in.starts[from] != 0))) {
      ThrowInvalid("row ", r, " has ", length, " tokens and ", to - from,
                   " segments; the first must begin at position 0.");
    }
    for (int64_t i = from + 1; i < to; ++i) {
      if (in.starts[i] <= in.starts[i - 1]) {
        ThrowInvalid("the segments of row ", r, " must rise; ",
                     in.starts[i - 1], " comes before ", in.starts[i], ".");
      }
    }
    if (config.labels_are_shifted && in.token_width == width && width > 0 &&
        std::min(length - 1, config.seq_length) >= config.end) {
      ThrowInvalid("row ", r, " has a token at position ", config.end,
                   ", the label of the window's last position; tokens must "
                   "hold it as one more column.");
    }
  }
}

HPGRAIN_CLONES
void CountFrom(int32_t first, int64_t count, int32_t* out) {
  for (int64_t i = 0; i < count; ++i) {
    out[i] = first + static_cast<int32_t>(i);
  }
}

HPGRAIN_CLONES
void MaskLoss(const int32_t* labels, int64_t count, float* out) {
  for (int64_t i = 0; i < count; ++i) out[i] = labels[i] >= 0 ? 1.0f : 0.0f;
}

// Both comparisons in 32 bits and without a branch: the loop then becomes
// wide instructions.
HPGRAIN_CLONES
void MaskLossAndId(const int32_t* labels, const int32_t* ids, int32_t masked,
                   int64_t count, float* out) {
  for (int64_t i = 0; i < count; ++i) {
    out[i] = (labels[i] >= 0) & (ids[i] != masked) ? 1.0f : 0.0f;
  }
}

// All of one row. `tokens` begins at position `begin`; `starts` are its own.
void MakeRow(const int32_t* tokens, Span<const int64_t> starts,
             int64_t length, const FieldsConfig& config, int64_t width,
             int32_t* input_ids, int32_t* labels, int32_t* position_ids,
             int32_t* segment_ids, float* loss_mask) {
  const int64_t begin = config.begin;
  const auto column = [&](int64_t position) {
    return std::min(std::max(position - begin, int64_t{0}), width);
  };
  const int64_t real = std::min(length, config.seq_length);
  const int64_t num_real = column(real);

  std::copy_n(tokens, num_real, input_ids);
  std::fill(input_ids + num_real, input_ids + width, 0);

  if (config.labels_are_shifted) {
    const int64_t num_labels = column(std::min(real, length - 1));
    std::copy_n(tokens + 1, num_labels, labels);
    std::fill(labels + num_labels, labels + width, kIgnoreIndex);
  } else {
    std::copy_n(tokens, num_real, labels);
    std::fill(labels + num_real, labels + width, kIgnoreIndex);
  }

  if (!config.reset_position_ids) {
    CountFrom(static_cast<int32_t>(begin), width, position_ids);
  } else if (begin + num_real < config.end) {
    // Padding counts from where it begins.
    CountFrom(static_cast<int32_t>(std::max(begin - real, int64_t{0})),
              width - num_real, position_ids + num_real);
  }
  if (!config.reset_attention_mask) {
    std::fill_n(segment_ids, num_real, 1);
  }
  std::fill(segment_ids + num_real, segment_ids + width, 0);

  // The segment that holds the window's first position, and those after.
  int64_t i = std::upper_bound(starts.begin(), starts.end(), begin) -
              starts.begin() - 1;
  for (i = std::max(i, int64_t{0}); i < starts.size; ++i) {
    const int64_t start = starts[i];
    if (start > config.end) break;
    const int64_t from = std::min(column(start), num_real);
    const int64_t to = i + 1 < starts.size
                           ? std::min(column(starts[i + 1]), num_real)
                           : num_real;
    if (config.reset_position_ids && from < to) {
      CountFrom(static_cast<int32_t>(begin + from - start), to - from,
                position_ids + from);
    }
    if (config.reset_attention_mask) {
      std::fill(segment_ids + from, segment_ids + to,
                static_cast<int32_t>(i + 1));
    }
    if (config.labels_are_shifted && config.mask_boundary_labels &&
        start > begin && start <= config.end) {
      labels[start - 1 - begin] = kIgnoreIndex;
    }
  }

  constexpr int64_t kMaxId = (int64_t{1} << 31) - 1;
  if (config.eod_id >= 0 && config.eod_id <= kMaxId) {
    MaskLossAndId(labels, input_ids, static_cast<int32_t>(config.eod_id),
                  width, loss_mask);
  } else {
    MaskLoss(labels, width, loss_mask);
  }
}

}  // namespace

void MakeFields(const FieldsInput& input, const FieldsConfig& config,
                const FieldsOutput& output) {
  Check(input, config, output);
  const int64_t width = config.end - config.begin;
  if (width == 0) return;
  for (int64_t r = 0; r < input.num_rows; ++r) {
    const int64_t from = input.row_splits[r];
    const int64_t at = r * width;
    MakeRow(input.tokens.data + r * input.token_width,
            {input.starts.data + from, input.row_splits[r + 1] - from},
            input.lengths[r], config, width, output.input_ids.data + at,
            output.labels.data + at, output.position_ids.data + at,
            output.segment_ids.data + at, output.loss_mask.data + at);
  }
}

}  // namespace hpgrain
