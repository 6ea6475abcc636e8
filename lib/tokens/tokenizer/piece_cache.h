// The tokens of short pieces that came before: words come again and again. A fixed number of
// entries, of which a new one replaces an old one. One thread.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

namespace dslaunch::tokens {

class PieceCache {
  public:
    static constexpr size_t kPieceBytesMax = 31;
    static constexpr size_t kTokensMax = 7;

    struct Entry {
        std::array<uint64_t, 4> key{};  // the bytes, then zeros; the last byte is their number
        std::array<int32_t, kTokensMax> ids{};
        uint32_t ids_count = 0;
    };

    // What find() looked up, for the store() that may follow.
    struct Key {
        std::array<uint64_t, 4> words{};
        size_t bucket = 0;
    };

    // The key of PIECE, which is a part of a text that goes on for BYTES_AFTER bytes behind it.
    // REQUIRES: at most kPieceBytesMax bytes.
    [[nodiscard]] static Key key_of(std::string_view piece, size_t bytes_after) {
        Key key;
        const size_t length = piece.size();
        if (length + bytes_after >= sizeof(key.words)) {
            std::memcpy(key.words.data(), piece.data(), sizeof(key.words));
            for (size_t i = 0; i < key.words.size(); ++i) {
                const size_t here = length > i * 8 ? length - i * 8 : 0;
                if (here < 8) key.words[i] &= (uint64_t{1} << here * 8) - 1;
            }
        } else {
            std::memcpy(key.words.data(), piece.data(), length);
        }
        key.words[3] |= uint64_t{length} << 56;
        uint64_t hash = (key.words[0] ^ key.words[3]) * 0x9E3779B97F4A7C15;
        if (length > 8) {
            hash ^= hash >> 29;
            hash = (hash ^ key.words[1]) * 0xD6E8FEB86659FD93;
            hash ^= hash >> 31;
            hash = (hash ^ key.words[2]) * 0x9E3779B97F4A7C15;
        }
        key.bucket = static_cast<size_t>(hash >> (64 - kBucketBits));
        return key;
    }

    // Null if it is not there.
    [[nodiscard]] const Entry* find(const Key& key) const {
        const Entry* entries = entries_.data() + key.bucket * 2;
        if (entries[0].key == key.words) return entries;
        if (entries[1].key == key.words) return entries + 1;
        return nullptr;
    }

    void store(const Key& key, std::span<const int32_t> ids) {
        if (ids.size() > kTokensMax) return;
        Entry* entries = entries_.data() + key.bucket * 2;
        entries[1] = entries[0];
        entries[0].key = key.words;
        entries[0].ids_count = static_cast<uint32_t>(ids.size());
        std::memcpy(entries[0].ids.data(), ids.data(), ids.size_bytes());
    }

  private:
    static constexpr int kBucketBits = 14;
    std::vector<Entry> entries_ = std::vector<Entry>(size_t{2} << kBucketBits);
};

}  // namespace dslaunch::tokens
