// The tokens of a model, by text and by number. Built once, then only read, by any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace dslaunch::text {

constexpr int32_t kNoToken = -1;
constexpr int64_t kTokenIdMax = (1 << 22) - 1;  // ten times the ids of the largest real models

// Returns a fast hash of TEXT, equal on all machines that have the same byte order.
[[nodiscard]] uint64_t hash_of(std::string_view text);

// The tokens' texts in one string, with a hash table of them.
class Vocabulary {
  public:
    // Returns false if TEXT or ID was added before. REQUIRES: 0 <= ID <= kTokenIdMax.
    [[nodiscard]] bool add(std::string_view text, int32_t id);
    // Adds TEXT with ID, even if TEXT was added before; find() then returns the last ID.
    void add_again(std::string_view text, int32_t id);

    // Returns the number of the token TEXT, or kNoToken if there is no such token.
    [[nodiscard]] int32_t find(std::string_view text) const;
    // Returns the text of token ID, or nothing if there is no such token.
    [[nodiscard]] std::optional<std::string_view> text_of(int32_t id) const;
    // Return the number of texts that were added, and the largest ID + 1.
    [[nodiscard]] int64_t tokens_count() const { return tokens_count_; }
    [[nodiscard]] int64_t ids_end() const { return static_cast<int64_t>(places_.size()); }

  private:
    struct Place {
        uint32_t begin = 0;
        int32_t bytes = -1;  // -1 if no token has this number
    };
    struct Slot {
        uint32_t hash = 0;
        int32_t id = kNoToken;
    };
    [[nodiscard]] size_t slot_of(std::string_view text, uint64_t hash) const;
    [[nodiscard]] std::string_view view(const Place& place) const {
        return std::string_view(texts_).substr(place.begin, static_cast<size_t>(place.bytes));
    }
    void store(std::string_view text, int32_t id);
    void grow();

    std::string texts_;
    std::vector<Place> places_;  // by id
    std::vector<Slot> slots_ = std::vector<Slot>(64);
    int64_t tokens_count_ = 0;
    size_t used_ = 0;
};

}  // namespace dslaunch::text
