// UTF-8, as Python decodes it: strictly.

#ifndef HPGRAIN_UTF8_H_
#define HPGRAIN_UTF8_H_

#include <cstdint>

namespace hpgrain {

constexpr uint64_t kHighBits = 0x8080808080808080u;

// A character beyond ASCII, and how many bytes it takes; 0 for none.
struct CodePoint {
  uint32_t value = 0;
  int length = 0;
};

// Decodes the character that begins at `p`, before `end`. What is no UTF-8
// (halves of surrogate pairs, overlong forms, what is cut off) has length 0.
inline CodePoint DecodeUtf8(const uint8_t* p, const uint8_t* end) {
  const auto tail = [](uint8_t byte) { return (byte & 0xC0) == 0x80; };
  const uint32_t lead = *p;
  const int64_t left = end - p;
  if (lead < 0x80) return {lead, 1};
  if (lead >= 0xC2 && lead < 0xE0) {
    if (left < 2 || !tail(p[1])) return {};
    return {(lead & 0x1Fu) << 6 | (p[1] & 0x3Fu), 2};
  }
  if (lead >= 0xE0 && lead < 0xF0) {
    if (left < 3 || !tail(p[1]) || !tail(p[2])) return {};
    const uint32_t value =
        (lead & 0x0Fu) << 12 | (p[1] & 0x3Fu) << 6 | (p[2] & 0x3Fu);
    if (value < 0x800 || (value >= 0xD800 && value < 0xE000)) return {};
    return {value, 3};
  }
  if (lead >= 0xF0 && lead < 0xF5) {
    if (left < 4 || !tail(p[1]) || !tail(p[2]) || !tail(p[3])) return {};
    const uint32_t value = (lead & 0x07u) << 18 | (p[1] & 0x3Fu) << 12 |
                           (p[2] & 0x3Fu) << 6 | (p[3] & 0x3Fu);
    if (value < 0x10000 || value > 0x10FFFF) return {};
    return {value, 4};
  }
  return {};
}

// Writes a code point that is no half of a pair; returns the place after it.
inline uint8_t* EncodeUtf8(uint32_t value, uint8_t* out) {
  const auto byte = [](uint32_t bits) { return static_cast<uint8_t>(bits); };
  if (value < 0x80) {
    *out++ = byte(value);
  } else if (value < 0x800) {
    *out++ = byte(0xC0 | value >> 6);
    *out++ = byte(0x80 | (value & 0x3F));
  } else if (value < 0x10000) {
    *out++ = byte(0xE0 | value >> 12);
    *out++ = byte(0x80 | (value >> 6 & 0x3F));
    *out++ = byte(0x80 | (value & 0x3F));
  } else {
    *out++ = byte(0xF0 | value >> 18);
    *out++ = byte(0x80 | (value >> 12 & 0x3F));
    *out++ = byte(0x80 | (value >> 6 & 0x3F));
    *out++ = byte(0x80 | (value & 0x3F));
  }
  return out;
}

}  // namespace hpgrain

#endif  // HPGRAIN_UTF8_H_
