// The character map that sentencepiece compiles into its models: a trie of the texts to replace,
// stored as a double array, and the texts that replace them, each ended by a zero byte.
#include <algorithm>
#include <cstring>
#include <optional>

#include "base/error.h"
#include "text/subword/growth.h"
#include "text/tokenizer/normalizer.h"
#include "text/tokenizer/step_fields.h"
#include "text/unicode/code_points.h"
#include "text/unicode/graphemes.h"

namespace dslaunch::text {
namespace {

constexpr size_t kClusterBytesMax = 5;  // longer clusters are replaced character by character

std::optional<std::string> from_base64(std::string_view text) {
    const auto value_of = [](char c) -> int {
        if (c >= 'A' && c <= 'Z') return c - 'A';
        if (c >= 'a' && c <= 'z') return c - 'a' + 26;
        if (c >= '0' && c <= '9') return c - '0' + 52;
        return c == '+' ? 62 : c == '/' ? 63 : -1;
    };
    if (text.size() % 4 != 0) return std::nullopt;
    for (int pads = 0; pads < 2 && text.ends_with('='); ++pads) text.remove_suffix(1);
    std::string bytes;
    bytes.reserve(text.size() / 4 * 3 + 3);
    uint32_t bits = 0;
    int count = 0;
    for (const char c : text) {
        const int value = value_of(c);
        if (value < 0) return std::nullopt;
        bits = bits << 6 | static_cast<uint32_t>(value);
        count += 6;
        if (count < 8) continue;
        count -= 8;
        bytes += static_cast<char>(bits >> count & 0xFF);
    }
    return bytes;
}

class Precompiled : public Normalizer {
  public:
    Precompiled(std::vector<uint32_t> units, std::string texts)
        : units_(std::move(units)), texts_(std::move(texts)) {
        for (size_t c = 1; c < 128; ++c) {
            const char letter = static_cast<char>(c);
            changes_[c] = replacement({&letter, 1}).has_value();
        }
    }

    void apply(NormalText& normal) const override {
        const std::string_view text = normal.text;
        AlignedText out;
        out.reserve(text.size() + 16);
        for (size_t i = 0; i < text.size();) {
            i = append_part(normal, i, out);
            require_room(out.text.size(), normal.bytes_max);
        }
        // The first character of the result gets the place of the first original character, as in
        // the Python package, even if that character was dropped.
        if (!out.text.empty()) {
            size_t first = 0;
            (void)next_point(out.text, first);
            std::fill_n(out.from.begin(), first, normal.from.front());
        }
        normal.become(std::move(out));
    }

  private:
    // Appends the replacement of the cluster that begins at BEGIN. Returns the cluster's end.
    size_t append_part(const NormalText& normal, size_t begin, AlignedText& out) const {
        const std::string_view text = normal.text;
        const auto byte = [&](size_t at) { return static_cast<unsigned char>(text[at]); };
        // In ASCII only "\r\n" is a cluster of two characters.
        if (byte(begin) < 0x80 && !changes_[byte(begin)] &&
            (begin + 1 == text.size() || (byte(begin + 1) < 0x80 && byte(begin + 1) != '\n'))) {
            out.append(text.substr(begin, 1), normal.from[begin]);
            return begin + 1;
        }
        const size_t end = grapheme_end(text, begin);
        const std::string_view cluster = text.substr(begin, end - begin);
        if (cluster.size() <= kClusterBytesMax) {
            if (const auto whole = replacement(cluster)) {
                append_aligned(*whole, normal, begin, end, out);
                return end;
            }
        }
        for (size_t i = 0; i < cluster.size();) {
            const size_t from = i;
            (void)next_point(cluster, i);
            const std::string_view character = cluster.substr(from, i - from);
            out.append(replacement(character).value_or(character), normal.from[begin + from]);
        }
        return end;
    }

    // Appends WRITTEN to OUT in place of NORMAL's characters from BEGIN to END. Each character of
    // WRITTEN gets the place of one replaced character, in order. If WRITTEN has more characters,
    // the rest get the place of the last replaced character.
    static void append_aligned(std::string_view written, const NormalText& normal, size_t begin,
                               size_t end, AlignedText& out) {
        size_t at = begin;
        for (size_t i = 0; i < written.size();) {
            const size_t first = i;
            (void)next_point(written, i);
            out.append(written.substr(first, i - first), normal.from[at]);
            size_t next = at;
            (void)next_point(normal.text, next);
            if (next < end) at = next;
        }
    }

    // Returns the replacement of the shortest prefix of TEXT that is in the map, or nothing if
    // there is none.
    [[nodiscard]] std::optional<std::string_view> replacement(std::string_view text) const {
        size_t at = offset_of(units_[0]);
        for (const char c : text) {
            const auto byte = static_cast<unsigned char>(c);
            if (byte == 0) return std::nullopt;
            at ^= byte;
            if (at >= units_.size()) return std::nullopt;
            const uint32_t unit = units_[at];
            if ((unit & (1u << 31 | 0xFF)) != byte) return std::nullopt;
            at ^= offset_of(unit);
            if (!(unit >> 8 & 1)) continue;
            if (at >= units_.size()) return std::nullopt;
            const size_t begin = units_[at] & ((1u << 31) - 1);
            const bool is_inside =  // inside a character; sentencepiece never writes this
                begin < texts_.size() && (static_cast<unsigned char>(texts_[begin]) & 0xC0) == 0x80;
            if (begin >= texts_.size() || is_inside) return std::string_view();
            return std::string_view(texts_.data() + begin);
        }
        return std::nullopt;
    }

    static size_t offset_of(uint32_t unit) {
        return static_cast<size_t>(unit >> 10) << ((unit & 1u << 9) >> 6);
    }

    std::vector<uint32_t> units_;
    std::string texts_;  // it ends with a zero byte, as every std::string does
    bool changes_[128] = {};
};

}  // namespace

std::unique_ptr<const Normalizer> read_precompiled(const JsonPlace& place) {
    expect_step_fields(place, {"type", "precompiled_charsmap"});
    const JsonPlace map = place.at("precompiled_charsmap");
    const std::optional<std::string> bytes = from_base64(map.text());
    if (!bytes) map.refuse("it is not base64");
    uint32_t trie_bytes = 0;
    if (bytes->size() >= sizeof(trie_bytes))
        std::memcpy(&trie_bytes, bytes->data(), sizeof(trie_bytes));
    trie_bytes -= trie_bytes % 4;
    if (trie_bytes == 0 || trie_bytes > bytes->size() - sizeof(trie_bytes))
        map.refuse("the length of its trie does not fit: the field is damaged");
    std::vector<uint32_t> units(trie_bytes / 4);
    std::memcpy(units.data(), bytes->data() + sizeof(trie_bytes), trie_bytes);
    std::string texts = bytes->substr(sizeof(trie_bytes) + trie_bytes);
    if (valid_utf8_prefix(texts) != texts.size()) map.refuse("its texts are not UTF-8");
    return std::make_unique<Precompiled>(std::move(units), std::move(texts));
}

}  // namespace dslaunch::text
