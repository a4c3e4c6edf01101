#include "record_starts.h"

#include <cstring>

#include "errors.h"

namespace hpgrain {
namespace {

bool IsJsonSpace(uint8_t c) {
  return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

// What Python's bytes.isspace takes for white space.
bool IsSpace(uint8_t c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

// The place of `c`, or the end.
const uint8_t* Find(const uint8_t* p, const uint8_t* end, char c) {
  if (p == end) return end;
  const void* found = std::memchr(p, c, static_cast<size_t>(end - p));
  return found == nullptr ? end : static_cast<const uint8_t*>(found);
}

}  // namespace

RecordKind RecordKindNamed(std::string_view name) {
  if (name == "json_lines") return RecordKind::kJsonLines;
  if (name == "text_lines") return RecordKind::kTextLines;
  if (name == "csv_rows") return RecordKind::kCsvRows;
  if (name == "json_array") return RecordKind::kJsonArray;
  ThrowInvalid("kind is \"", name, "\"; there are json_lines, text_lines,"
               " csv_rows and json_array.");
}

RecordStarts::RecordStarts(RecordKind kind, int64_t offset)
    : kind_(kind),
      state_(kind == RecordKind::kJsonArray ? State::kBefore : State::kBlank),
      offset_(offset),
      start_(offset) {
  if (offset < 0) ThrowInvalid("offset is ", offset, "; files begin at 0.");
}

void RecordStarts::Feed(Span<const uint8_t> block,
                        std::vector<int64_t>* starts) {
  switch (kind_) {
    case RecordKind::kJsonLines:
    case RecordKind::kTextLines:
      Lines(block, starts);
      break;
    case RecordKind::kCsvRows:
      Rows(block, starts);
      break;
    case RecordKind::kJsonArray:
      Elements(block, starts);
      break;
  }
  offset_ += block.size;
}

void RecordStarts::Lines(Span<const uint8_t> block,
                         std::vector<int64_t>* starts) {
  const bool json = kind_ == RecordKind::kJsonLines;
  const uint8_t* p = block.begin();
  const uint8_t* const end = block.end();
  while (p != end) {
    if (state_ != State::kInside) {
      const uint8_t c = *p;
      if (c == '\n') {
        ++p;
        start_ = offset_ + (p - block.begin());
        state_ = State::kBlank;
        continue;
      }
      const bool blank =
          json ? IsSpace(c) : c == '\r' && state_ == State::kBlank;
      if (blank) {
        ++p;
        if (!json) state_ = State::kReturned;
        continue;
      }
      starts->push_back(start_);
      state_ = State::kInside;
    }
    p = Find(p, end, '\n');
    if (p == end) return;
    ++p;
    start_ = offset_ + (p - block.begin());
    state_ = State::kBlank;
  }
}

// As Python's csv module with strict=True, which drops the rest of a line in
// which a row goes wrong and begins the next row with the next line.
void RecordStarts::Rows(Span<const uint8_t> block,
                        std::vector<int64_t>* starts) {
  const uint8_t* p = block.begin();
  const uint8_t* const end = block.end();
  while (p != end) {
    // Only these are passed over in long steps.
    if (state_ == State::kQuoted) {
      p = Find(p, end, '"');
      if (p == end) return;
      ++p;
      state_ = State::kQuote;
      continue;
    }
    if (state_ == State::kBroken) {
      p = Find(p, end, '\n');
      if (p == end) return;
    }
    const uint8_t c = *p++;
    if (c == '\n') {
      start_ = offset_ + (p - block.begin());
      state_ = State::kBlank;
      known_ = false;
      continue;
    }
    if (!known_ && c != '\r') {
      starts->push_back(start_);
      known_ = true;
    }
    if (state_ == State::kReturned) {
      if (c != '\r') state_ = State::kBroken;
    } else if (c == '\r') {
      state_ = State::kReturned;
    } else if (c == ',') {
      state_ = State::kInside;
    } else if (c == '"' && state_ != State::kField) {
      state_ = State::kQuoted;
    } else {
      state_ = state_ == State::kQuote ? State::kBroken : State::kField;
    }
  }
}

void RecordStarts::Elements(Span<const uint8_t> block,
                            std::vector<int64_t>* starts) {
  const uint8_t* p = block.begin();
  const uint8_t* const end = block.end();
  const auto place = [&] { return offset_ + (p - block.begin()); };
  while (p != end) {
    if (state_ == State::kEscape) {
      ++p;
      state_ = State::kString;
      continue;
    }
    if (state_ == State::kString) {
      p = StringEnd(p, end);
      if (p == end) return;
      ++p;
      state_ = State::kInside;
      continue;
    }
    const uint8_t c = *p;
    if (IsJsonSpace(c)) {
      ++p;
      continue;
    }
    if (state_ == State::kBefore) {
      if (c != '[') {
        ThrowInvalid("byte ", place(), " stands before the array.");
      }
      ++p;
      state_ = State::kInside;
      continue;
    }
    if (state_ == State::kAfter) {
      if (rest_ < 0) rest_ = place();
      return;
    }
    const bool closes = (c == ']' || c == '}') && depth_ == 0;
    // An empty array has no element; a comma has one on both its sides.
    if (!known_ && !(closes && first_)) {
      starts->push_back(place());
      known_ = true;
    }
    ++p;
    if (c == '"') {
      state_ = State::kString;
    } else if (closes) {
      starts->push_back(place());
      state_ = State::kAfter;
    } else if (c == ',' && depth_ == 0) {
      first_ = known_ = false;
    } else if (c == '[' || c == '{') {
      ++depth_;
    } else if (c == ']' || c == '}') {
      --depth_;
    }
  }
}

const uint8_t* RecordStarts::StringEnd(const uint8_t* p, const uint8_t* end) {
  while (true) {
    const uint8_t* const quote = Find(p, end, '"');
    const uint8_t* before = quote;
    while (before != p && before[-1] == '\\') --before;
    const bool escaped = (quote - before) % 2 != 0;
    if (quote == end) {
      if (escaped) state_ = State::kEscape;
      return end;
    }
    if (!escaped) return quote;
    p = quote + 1;
  }
}

}  // namespace hpgrain
