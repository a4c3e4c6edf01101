#include "gather.h"

#include <algorithm>
#include <atomic>
#include <limits>

#include "clones.h"
#include "errors.h"

namespace hpgrain {
namespace {

std::atomic<int64_t> gathered_bytes{0};

// Tokens that lie together in a .bin and in a row: one or more pieces.
struct Run {
  const TokenFile* file;
  int64_t bytes;  // where it begins in the .bin
  int64_t count;  // tokens
  int32_t* out;
  int64_t piece;     // the first piece
  int64_t position;  // its first token's position in the row
};

// Copies `count` tokens; returns whether all lie in [0, limit]. The loop has
// no exit, so that it becomes wide instructions: a bad id sets the sign bit
// of either term, and is looked for afterwards.
template <typename T>
inline __attribute__((always_inline)) bool Convert(
    const uint8_t* in, int64_t count, int64_t limit, int32_t* out) {
  if constexpr (sizeof(T) == 8) {
    int64_t bad = 0;
    for (int64_t i = 0; i < count; ++i) {
      const int64_t id = LoadUnaligned<T>(in, i);
      // Unsigned: the difference wraps where id is negative, which the first
      // term has seen already.
      bad |= id | static_cast<int64_t>(static_cast<uint64_t>(limit) -
                                       static_cast<uint64_t>(id));
      out[i] = static_cast<int32_t>(id);
    }
    return bad >= 0;
  } else {
    int32_t bad = 0;
    const uint32_t top = static_cast<uint32_t>(limit);
    for (int64_t i = 0; i < count; ++i) {
      const int32_t id = LoadUnaligned<T>(in, i);
      bad |= id | static_cast<int32_t>(top - static_cast<uint32_t>(id));
      out[i] = id;
    }
    return bad >= 0;
  }
}

HPGRAIN_CLONES
bool ConvertAny(int dtype_code, const uint8_t* in, int64_t count,
                int64_t limit, int32_t* out) {
  switch (dtype_code) {
    case 1:
      return Convert<uint8_t>(in, count, limit, out);
    case 2:
      return Convert<int8_t>(in, count, limit, out);
    case 3:
      return Convert<int16_t>(in, count, limit, out);
    case 4:
      return Convert<int32_t>(in, count, limit, out);
    case 5:
      return Convert<int64_t>(in, count, limit, out);
    default:
      return Convert<uint16_t>(in, count, limit, out);
  }
}

int64_t LoadAny(int dtype_code, const uint8_t* in, int64_t i) {
  switch (dtype_code) {
    case 1:
      return in[i];
    case 2:
      return LoadUnaligned<int8_t>(in, i);
    case 3:
      return LoadUnaligned<int16_t>(in, i);
    case 4:
      return LoadUnaligned<int32_t>(in, i);
    case 5:
      return LoadUnaligned<int64_t>(in, i);
    default:
      return LoadUnaligned<uint16_t>(in, i);
  }
}

// Asks for a run's tokens, so that its misses overlap and pass while the run
// before it is converted.
void Prefetch(const Run& run) {
  constexpr int64_t kMaxBytes = 16384;
  constexpr int64_t kLine = 64;
  if (run.file->tokens == nullptr) return;
  const uint8_t* const begin = run.file->tokens + run.bytes;
  const int64_t size = std::min(run.count * run.file->item_size, kMaxBytes);
  for (int64_t at = 0; at < size; at += kLine) __builtin_prefetch(begin + at);
}

BadId FindBadId(const RowPlansView& plans, const Run& run, const uint8_t* in,
                int64_t limit) {
  for (int64_t i = 0; i < run.count; ++i) {
    const int64_t id = LoadAny(run.file->dtype_code, in, i);
    if (id >= 0 && id <= limit) continue;
    // The run begins inside its first piece; later pieces are whole.
    const int64_t row =
        std::upper_bound(plans.row_splits.begin(), plans.row_splits.end(),
                         run.piece) - plans.row_splits.begin() - 1;
    int64_t piece = plans.row_splits[row];
    int64_t end = plans.length[piece];
    while (end <= run.position + i) end += plans.length[++piece];
    return {piece, run.position + i, id};
  }
  return {};
}

}  // namespace

void CheckFiles(const FileSet& set) {
  const int64_t num_files = static_cast<int64_t>(set.files.size());
  if (set.sources.size != num_files) {
    ThrowInvalid(set.sources.size, " sources were given ", num_files,
                 " files; there must be one each.");
  }
  for (int64_t i = 0; i < num_files; ++i) {
    if (i > 0 && set.sources[i] <= set.sources[i - 1]) {
      ThrowInvalid("sources must rise; ", set.sources[i - 1],
                   " comes before ", set.sources[i], ".");
    }
    if (set.files[i] == nullptr) {
      ThrowInvalid("the file of source ", set.sources[i], " is None.");
    }
    const int code = set.files[i]->dtype_code;
    if (code == 6 || code == 7) {
      ThrowInvalid("source ", set.sources[i], " has the dtype code ", code,
                   ", a float; token ids are read from the integer codes "
                   "1, 2, 3, 4, 5 and 8.");
    }
  }
}

const TokenFile& FileFinder::Find(int64_t piece, int32_t source) {
  if (last_ < 0 || set_.sources[last_] != source) {
    const int32_t* const found =
        std::lower_bound(set_.sources.begin(), set_.sources.end(), source);
    if (found == set_.sources.end() || *found != source) {
      ThrowOutOfRange("piece ", piece, " reads source ", source,
                      ", for which no file was given.");
    }
    last_ = found - set_.sources.begin();
  }
  return *set_.files[last_];
}

int64_t PieceBytes(const TokenFile& file, const RowPlansView& plans,
                   int64_t piece) {
  const int64_t sequence = plans.sequence[piece];
  const int64_t offset = plans.offset[piece];
  const int64_t length = plans.length[piece];
  if (sequence < 0 || sequence >= file.num_sequences) {
    ThrowOutOfRange("piece ", piece, " of source ", plans.source[piece],
                    " reads sequence ", sequence, "; the file holds ",
                    file.num_sequences, ".");
  }
  const int64_t has = file.Length(sequence);
  if (offset < 0 || length < 0 || offset > has || length > has - offset) {
    ThrowOutOfRange("piece ", piece, " of source ", plans.source[piece],
                    " reads ", length, " tokens from token ", offset,
                    " of sequence ", sequence, ", which has ", has, ".");
  }
  const int64_t pointer = file.Pointer(sequence);
  // offset + length is at most an int32, so the products cannot overflow.
  if (pointer < 0 || pointer > file.num_bytes ||
      (offset + length) * file.item_size > file.num_bytes - pointer) {
    ThrowOutOfRange("piece ", piece, " of source ", plans.source[piece],
                    " reads ", length, " tokens from token ", offset,
                    " of sequence ", sequence, " at byte ", pointer,
                    "; the .bin has ", file.num_bytes, " bytes.");
  }
  return pointer + offset * file.item_size;
}

BadId Gather(const RowPlansView& plans, const FileSet& set,
             const GatherConfig& config, Span<int32_t> out) {
  CheckPlans(plans, /*with_boundary=*/false);
  CheckFiles(set);
  const int64_t begin = config.begin;
  const int64_t end = config.end;
  constexpr int64_t kMaxIds = int64_t{1} << 31;
  if (begin < 0 || end < begin) {
    ThrowInvalid("the window [", begin, ", ", end, ") is no range of "
                 "positions.");
  }
  if (config.vocab_size < 0 || config.vocab_size > kMaxIds) {
    ThrowInvalid("vocab_size is ", config.vocab_size,
                 "; it must be from 0 (not checked) to 2**31.");
  }
  const int64_t width = end - begin;
  const int64_t num_rows = plans.num_rows();
  if (width == 0 ? out.size != 0
                 : out.size % width != 0 || out.size / width != num_rows) {
    ThrowInvalid("out has ", out.size, " elements; ", num_rows, " rows of ",
                 width, " positions are read.");
  }
  const int64_t limit =
      (config.vocab_size == 0 ? kMaxIds : config.vocab_size) - 1;

  // First every piece is checked and the runs are listed; then they are
  // read, with the next runs' first lines on their way.
  std::vector<Run> runs;
  runs.reserve(static_cast<size_t>(num_rows));
  FileFinder finder(set);
  for (int64_t row = 0; row < num_rows; ++row) {
    int32_t* const row_out = out.data + row * width;
    int64_t position = 0;
    const size_t row_runs = runs.size();
    for (int64_t p = plans.row_splits[row]; p < plans.row_splits[row + 1];
         ++p) {
      const TokenFile& file = finder.Find(p, plans.source[p]);
      const int64_t bytes = PieceBytes(file, plans, p);
      const int64_t from = std::max(position, begin);
      const int64_t to = std::min(position + plans.length[p], end);
      if (from < to) {
        const int64_t at = bytes + (from - position) * file.item_size;
        Run* const last = runs.size() > row_runs ? &runs.back() : nullptr;
        if (last != nullptr && last->file == &file &&
            last->bytes + last->count * file.item_size == at) {
          last->count += to - from;
        } else {
          runs.push_back({&file, at, to - from, row_out + (from - begin), p,
                          from});
        }
      }
      position += plans.length[p];
    }
    const int64_t filled = std::min(std::max(position - begin, int64_t{0}),
                                    width);
    std::fill(row_out + filled, row_out + width, config.pad_id);
  }

  std::vector<uint8_t> buffer;
  int64_t read = 0;
  BadId bad;
  if (!runs.empty()) Prefetch(runs.front());
  for (size_t i = 0; i < runs.size(); ++i) {
    const Run& run = runs[i];
    if (i + 1 < runs.size()) Prefetch(runs[i + 1]);
    const int64_t size = run.count * run.file->item_size;
    const uint8_t* in = nullptr;
    if (run.file->tokens != nullptr) {
      in = run.file->tokens + run.bytes;
    } else {
      if (static_cast<int64_t>(buffer.size()) < size) buffer.resize(size);
      ReadExactly(run.file->fd, run.bytes, size, buffer.data());
      in = buffer.data();
    }
    read += size;
    if (!ConvertAny(run.file->dtype_code, in, run.count, limit, run.out)) {
      bad = FindBadId(plans, run, in, limit);
      break;
    }
  }
  gathered_bytes.fetch_add(read, std::memory_order_relaxed);
  return bad;
}

int64_t GatheredBytes() {
  return gathered_bytes.load(std::memory_order_relaxed);
}

void ResetGatheredBytes() {
  gathered_bytes.store(0, std::memory_order_relaxed);
}

}  // namespace hpgrain
