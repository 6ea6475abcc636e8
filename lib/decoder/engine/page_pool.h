// The page numbers of the key-value cache. Each sequence has a list of numbers, and the pool has
// the numbers of the free pages. Only the decoder knows the memory of a page.
#pragma once

#include <cstdint>
#include <iterator>
#include <vector>

namespace dslaunch::decoder {

// The allocator of the pages of the cache. Only one thread at a time may use it.
class PagePool {
  public:
    // Makes a pool of PAGES free pages, which are numbered from 0.
    explicit PagePool(int32_t pages);

    // Return the number of all pages, and of the free ones.
    [[nodiscard]] int64_t pages() const { return pages_; }
    [[nodiscard]] int64_t pages_free() const { return std::ssize(free_); }

    // Adds pages to LIST until it has room for POSITIONS. Returns false and does not change LIST if
    // too few pages are free.
    [[nodiscard]] bool grow(std::vector<int32_t>& list, int64_t positions);
    // Frees the pages of LIST and empties it.
    void give_back(std::vector<int32_t>& list);

  private:
    int64_t pages_;
    std::vector<int32_t> free_;  // the page that was freed last is used first
};

}  // namespace dslaunch::decoder
