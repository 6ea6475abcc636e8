// Pages of the cache of keys and values, as numbers: a page holds the keys and values of
// kPagePositions neighbouring positions of one sequence, in every layer. A sequence has a list of
// pages; the pool has the rest. Data path: engine -> [here] -> batch -> decoder, which alone knows
// the memory behind a number. Pure; one thread at a time.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace dslaunch::decoder {

inline constexpr int64_t kPagePositions = 32;

[[nodiscard]] constexpr int64_t pages_for(int64_t positions) {
    return (positions + kPagePositions - 1) / kPagePositions;
}

class PagePool {
  public:
    explicit PagePool(int32_t pages);

    [[nodiscard]] int64_t pages() const { return pages_; }
    [[nodiscard]] int64_t pages_free() const { return std::ssize(free_); }

    // Adds pages to LIST until it holds POSITIONS. False, and LIST is as it was: too few are free.
    [[nodiscard]] bool grow(std::vector<int32_t>& list, int64_t positions);
    // Takes the pages of LIST back, which is empty then.
    void give_back(std::vector<int32_t>& list);

  private:
    int64_t pages_;
    std::vector<int32_t> free_;  // the page that was given back last is lent first
};

}  // namespace dslaunch::decoder
