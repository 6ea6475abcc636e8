// A cache of the tokens of short pieces, because words occur again and again. The number of entries
// is bounded, and a new entry replaces an old one. The table is small until many pieces have been
// stored, so that short texts do not pay for a large table. One thread.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace dslaunch::text {

// The cache of one thread.
class PieceCache {
  public:
    static constexpr size_t kPieceBytesMax = 31;
    static constexpr size_t kTokensMax = 7;

    // A stored piece: the numbers of its tokens, and where each of them ends.
    struct Entry {
        std::array<uint64_t, 4> key{};  // the piece, then zeros; the last byte is its length
        std::array<int32_t, kTokensMax> ids{};
        uint32_t ends = 0;  // bit i: a token ends after byte i of the piece

        // Returns the numbers of the tokens; the entry must outlive the result.
        [[nodiscard]] std::span<const int32_t> tokens() const {
            return {ids.data(), static_cast<size_t>(std::popcount(ends))};
        }
    };

    // The key of a piece, for find() and for the store() that may follow.
    struct Key {
        std::array<uint64_t, 4> words{};
        uint64_t hash = 0;
    };

    // Returns the key of PIECE. BYTES_AFTER is the number of bytes that follow PIECE in its text
    // and that may be read. REQUIRES: PIECE has at most kPieceBytesMax bytes.
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
        key.hash = hash_of(key.words);
        return key;
    }

    // Returns null if KEY is not in the cache.
    [[nodiscard]] const Entry* find(const Key& key) const {
        const Entry* entries = bucket_of(key.hash);
        if (entries[0].key == key.words) return entries;
        if (entries[1].key == key.words) return entries + 1;
        return nullptr;
    }

    // Stores the tokens of a piece. ENDS: where in the piece each token ends. If two tokens end at
    // the same place, nothing is stored.
    void store(const Key& key, std::span<const int32_t> ids, std::span<const uint32_t> ends) {
        if (ids.size() > kTokensMax) return;
        uint32_t ends_bits = 0;
        for (const uint32_t end : ends) ends_bits |= uint32_t{1} << (end - 1);
        if (static_cast<size_t>(std::popcount(ends_bits)) != ids.size()) return;
        if (++stored_count_ > entries_.size() && bits_ < kBitsMax) grow();
        Entry entry;
        entry.key = key.words;
        entry.ends = ends_bits;
        std::ranges::copy(ids, entry.ids.begin());
        put(key.hash, entry);
    }

  private:
    static constexpr int kBitsMin = 6;
    static constexpr int kBitsMax = 14;

    [[nodiscard]] static uint64_t hash_of(const std::array<uint64_t, 4>& words) {
        uint64_t hash = (words[0] ^ words[3]) * 0x9E3779B97F4A7C15;
        if (words[3] >> 56 > 8) {
            hash ^= hash >> 29;
            hash = (hash ^ words[1]) * 0xD6E8FEB86659FD93;
            hash ^= hash >> 31;
            hash = (hash ^ words[2]) * 0x9E3779B97F4A7C15;
        }
        return hash;
    }
    [[nodiscard]] size_t first_of(uint64_t hash) const {
        return static_cast<size_t>(hash >> (64 - bits_)) * 2;
    }
    [[nodiscard]] const Entry* bucket_of(uint64_t hash) const {
        return entries_.data() + first_of(hash);
    }
    void put(uint64_t hash, const Entry& entry) {
        Entry* entries = entries_.data() + first_of(hash);
        entries[1] = entries[0];
        entries[0] = entry;
    }
    void grow() {
        bits_ = std::min(bits_ + 2, kBitsMax);
        std::vector<Entry> before = std::exchange(entries_, std::vector<Entry>(size_t{2} << bits_));
        stored_count_ = 0;
        // Inserts entries from the oldest to the newest, so that the newest entry of a bucket comes
        // first again. Leaves out unused entries: their length is 0, and no piece is empty.
        for (auto entry = before.rbegin(); entry != before.rend(); ++entry)
            if (entry->key[3] != 0) put(hash_of(entry->key), *entry);
    }

    int bits_ = kBitsMin;
    size_t stored_count_ = 0;  // since the table got its current size
    std::vector<Entry> entries_ = std::vector<Entry>(size_t{2} << kBitsMin);
};

}  // namespace dslaunch::text
