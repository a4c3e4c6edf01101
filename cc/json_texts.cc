#include "json_texts.h"

#include <algorithm>
#include <cstring>

#include "errors.h"
#include "utf8.h"

namespace hpgrain {
namespace {

// A number of more digits is left to Python, which has a limit of its own.
constexpr int kMaxDigits = 600;
// As many levels as a word has bits.
constexpr int kMaxDepth = 64;

bool IsSpace(uint8_t c) {
  return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

// As Python's bytes.isspace has it.
bool IsBlank(const uint8_t* p, const uint8_t* end) {
  return std::all_of(p, end, [](uint8_t c) {
    return c == ' ' || (c >= '\t' && c <= '\r');
  });
}

// The high bit of each byte that is a quote, a backslash, a control character
// or beyond ASCII. Of those flags only the lowest is right for sure.
uint64_t NotPlain(uint64_t word) {
  constexpr uint64_t kOnes = 0x0101010101010101u;
  const uint64_t quote = word ^ (kOnes * '"');
  const uint64_t slash = word ^ (kOnes * '\\');
  return (word | (word - kOnes * 0x20) | (quote - kOnes) | (slash - kOnes)) &
         kHighBits;
}

// Reads one line; whatever it does not like makes it return false.
class LineReader {
 public:
  LineReader(const uint8_t* begin, const uint8_t* end)
      : p_(begin), end_(end) {}

  // Reads an object whose texts go behind those that are there.
  bool Object(const std::vector<std::string>& keys,
              std::vector<ByteBuffer>& texts,
              const std::vector<std::vector<int64_t>>& splits) {
    uint64_t found = 0;
    SkipSpace();
    if (!Take('{')) return false;
    SkipSpace();
    if (Take('}')) return false;
    do {
      SkipSpace();
      const uint8_t* const key = p_ + 1;
      if (!Take('"') || !SkipString(/*escapes=*/false)) return false;
      const auto size = static_cast<size_t>(p_ - 1 - key);
      SkipSpace();
      if (!Take(':')) return false;
      SkipSpace();
      size_t k = 0;
      while (k < keys.size() && (keys[k].size() != size ||
                                 std::memcmp(keys[k].data(), key, size))) {
        ++k;
      }
      if (k == keys.size()) {
        if (!SkipValue()) return false;
      } else {
        // One that comes twice takes the first one's place.
        texts[k].size = splits[k].back();
        if (!Take('"') || !Text(texts[k])) return false;
        found |= uint64_t{1} << k;
      }
      SkipSpace();
    } while (Take(','));
    if (!Take('}')) return false;
    SkipSpace();
    const uint64_t all = ~uint64_t{0} >> (64 - keys.size());
    return p_ == end_ && found == all;
  }

 private:
  void SkipSpace() {
    while (p_ < end_ && IsSpace(*p_)) ++p_;
  }

  bool Take(char c) {
    if (p_ == end_ || *p_ != static_cast<uint8_t>(c)) return false;
    ++p_;
    return true;
  }

  // Goes behind the quote that ends the string.
  bool SkipString(bool escapes = true) {
    while (true) {
      while (end_ - p_ >= 8) {
        const uint64_t flags = NotPlain(LoadUnaligned<uint64_t>(p_, 0));
        if (flags != 0) {
          p_ += __builtin_ctzll(flags) / 8;
          break;
        }
        p_ += 8;
      }
      if (p_ == end_) return false;
      const uint8_t c = *p_;
      if (c == '"') {
        ++p_;
        return true;
      }
      if (c < 0x20) return false;
      if (c == '\\') {
        uint32_t value = 0;
        if (!escapes || !Escape(value)) return false;
        continue;
      }
      const CodePoint point = DecodeUtf8(p_, end_);
      if (point.length == 0) return false;
      p_ += point.length;
    }
  }

  // Appends the string's characters. There is room: no text is longer than
  // what it is written as, so that a word that fits in the line fits here.
  bool Text(ByteBuffer& text) {
    uint8_t* out = text.bytes.get() + text.size;
    while (true) {
      while (end_ - p_ >= 8) {
        const auto word = LoadUnaligned<uint64_t>(p_, 0);
        const uint64_t flags = NotPlain(word);
        std::memcpy(out, &word, 8);
        if (flags != 0) {
          const int plain = __builtin_ctzll(flags) / 8;
          p_ += plain;
          out += plain;
          break;
        }
        p_ += 8;
        out += 8;
      }
      if (p_ == end_) return false;
      const uint8_t c = *p_;
      if (c == '"') {
        ++p_;
        text.size = out - text.bytes.get();
        return true;
      }
      if (c < 0x20) return false;
      if (c == '\\') {
        uint32_t value = 0;
        if (!Escape(value)) return false;
        out = EncodeUtf8(value, out);
        continue;
      }
      const int length = DecodeUtf8(p_, end_).length;
      if (length == 0) return false;
      for (int i = 0; i < length; ++i) *out++ = *p_++;
    }
  }

  // Reads an escape, or two that are a pair of surrogates.
  bool Escape(uint32_t& value) {
    if (end_ - p_ < 2) return false;
    const uint8_t c = p_[1];
    p_ += 2;
    switch (c) {
      case '"': case '\\': case '/': value = c; return true;
      case 'b': value = '\b'; return true;
      case 'f': value = '\f'; return true;
      case 'n': value = '\n'; return true;
      case 'r': value = '\r'; return true;
      case 't': value = '\t'; return true;
      case 'u': break;
      default: return false;
    }
    if (!Hex(value)) return false;
    if (value < 0xD800 || value >= 0xE000) return true;
    uint32_t low = 0;
    if (value >= 0xDC00 || end_ - p_ < 2 || p_[0] != '\\' || p_[1] != 'u') {
      return false;
    }
    p_ += 2;
    if (!Hex(low) || low < 0xDC00 || low >= 0xE000) return false;
    value = 0x10000 + ((value - 0xD800) << 10) + (low - 0xDC00);
    return true;
  }

  bool Hex(uint32_t& value) {
    if (end_ - p_ < 4) return false;
    value = 0;
    for (int i = 0; i < 4; ++i) {
      const uint8_t c = *p_++;
      const uint8_t letter = c | 0x20;
      uint32_t digit = 0;
      if (c >= '0' && c <= '9') {
        digit = c - '0';
      } else if (letter >= 'a' && letter <= 'f') {
        digit = letter - 'a' + 10;
      } else {
        return false;
      }
      value = value << 4 | digit;
    }
    return true;
  }

  bool SkipValue() {
    // Bit i: whether level i is an object.
    uint64_t objects = 0;
    int depth = 0;
    while (true) {
      SkipSpace();
      if (p_ == end_) return false;
      const uint8_t c = *p_;
      if (c == '{' || c == '[') {
        ++p_;
        SkipSpace();
        const bool object = c == '{';
        if (!Take(object ? '}' : ']')) {
          if (depth == kMaxDepth) return false;
          const uint64_t bit = uint64_t{1} << depth++;
          objects = object ? objects | bit : objects & ~bit;
          if (object && !MemberKey()) return false;
          continue;
        }
      } else if (c == '"') {
        ++p_;
        if (!SkipString()) return false;
      } else if (!Scalar(c)) {
        return false;
      }
      // A value ended; so may those around it.
      while (true) {
        if (depth == 0) return true;
        const bool object = objects >> (depth - 1) & 1;
        SkipSpace();
        if (Take(',')) {
          SkipSpace();
          if (object && !MemberKey()) return false;
          break;
        }
        if (!Take(object ? '}' : ']')) return false;
        --depth;
      }
    }
  }

  bool MemberKey() {
    if (!Take('"') || !SkipString()) return false;
    SkipSpace();
    return Take(':');
  }

  bool Scalar(uint8_t c) {
    switch (c) {
      case 't': return Word("true", 4);
      case 'f': return Word("false", 5);
      case 'n': return Word("null", 4);
      default: return Number();
    }
  }

  bool Word(const char* word, int64_t size) {
    if (end_ - p_ < size || std::memcmp(p_, word, static_cast<size_t>(size))) {
      return false;
    }
    p_ += size;
    return true;
  }

  bool Number() {
    Take('-');
    const uint8_t* const first = p_;
    if (!Digits() || (*first == '0' && p_ - first > 1)) return false;
    if (Take('.') && !Digits()) return false;
    if (Take('e') || Take('E')) {
      if (!Take('+')) Take('-');
      if (!Digits()) return false;
    }
    return true;
  }

  bool Digits() {
    const uint8_t* const first = p_;
    while (p_ < end_ && *p_ >= '0' && *p_ <= '9') ++p_;
    return p_ > first && p_ - first <= kMaxDigits;
  }

  const uint8_t* p_;
  const uint8_t* const end_;
};

void CheckKeys(const std::vector<std::string>& keys) {
  if (keys.empty() || keys.size() > 64) {
    ThrowInvalid("there must be 1 to 64 keys, got ", keys.size(), ".");
  }
  for (size_t i = 0; i < keys.size(); ++i) {
    for (size_t k = 0; k < i; ++k) {
      if (keys[i] == keys[k]) ThrowInvalid("key ", i, " is key ", k, " again.");
    }
  }
}

}  // namespace

JsonTexts ReadJsonTexts(Span<const uint8_t> block,
                        const std::vector<std::string>& keys) {
  CheckKeys(keys);
  JsonTexts result;
  result.texts.resize(keys.size());
  result.splits.assign(keys.size(), {0});
  for (auto& text : result.texts) {
    text.bytes.reset(new uint8_t[static_cast<size_t>(block.size) + 1]);
  }
  const uint8_t* const end = block.data + block.size;
  for (const uint8_t* line = block.data; line != end;) {
    const void* const newline =
        std::memchr(line, '\n', static_cast<size_t>(end - line));
    const auto* const stop =
        newline == nullptr ? end : static_cast<const uint8_t*>(newline);
    if (!IsBlank(line, stop)) {
      result.starts.push_back(line - block.data);
      result.stops.push_back(stop - block.data);
      const bool found =
          LineReader(line, stop).Object(keys, result.texts, result.splits);
      result.found.push_back(found);
      for (size_t k = 0; k < keys.size(); ++k) {
        if (!found) result.texts[k].size = result.splits[k].back();
        result.splits[k].push_back(result.texts[k].size);
      }
    }
    line = stop == end ? end : stop + 1;
  }
  return result;
}

}  // namespace hpgrain
