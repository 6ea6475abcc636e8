// Blocks of memory for the largest tensors, kept when they are freed and given out again, so that
// their pages are not faulted in each step, and no small tensor is put where a large one was and
// will be again: what is mapped is never more than what was in use at once. Used by the lending
// allocator. Any thread.
#pragma once

#include <cstddef>
#include <mutex>
#include <vector>

namespace dslaunch::runtime {

class LargeBlocks {
  public:
    static constexpr size_t kAlignment = size_t{64} << 10;
    // A block has at most this part of itself left over.
    static constexpr size_t kLeftOverDivisor = 16;

    LargeBlocks() = default;
    LargeBlocks(const LargeBlocks&) = delete;
    LargeBlocks& operator=(const LargeBlocks&) = delete;
    ~LargeBlocks();

    // At least BYTES > 0, aligned to kAlignment. Throws std::bad_alloc.
    [[nodiscard]] void* take(size_t bytes);
    // False: MEMORY is none of its blocks.
    [[nodiscard]] bool give_back(const void* memory);
    // Of all blocks, those that nobody uses included.
    [[nodiscard]] size_t mapped_bytes() const;

  private:
    struct Block {
        void* memory = nullptr;
        size_t bytes = 0;
        bool used = false;
    };
    // The smallest that suffice, one after the other.
    void unmap_unused(size_t mapped_bytes_max);

    mutable std::mutex mutex_;
    std::vector<Block> blocks_;  // a few
    size_t mapped_ = 0;
    size_t used_ = 0;
    size_t used_max_ = 0;
};

}  // namespace dslaunch::runtime
