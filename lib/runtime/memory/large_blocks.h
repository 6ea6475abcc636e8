// Blocks of memory for the largest tensors. They are kept when freed and used again, so that steps
// do not fault in their pages, and no small tensor takes the place of a large one that comes again.
// At most as many bytes are mapped as were in use at once. Used by the lending allocator. Any
// thread.
#pragma once

#include <cstddef>
#include <mutex>
#include <vector>

namespace dslaunch::runtime {

class LargeBlocks {
  public:
    static constexpr size_t kAlignment = size_t{64} << 10;
    // At most this part of a block is left over.
    static constexpr size_t kLeftOverDivisor = 16;

    LargeBlocks() = default;
    LargeBlocks(const LargeBlocks&) = delete;
    LargeBlocks& operator=(const LargeBlocks&) = delete;
    ~LargeBlocks();

    // Returns at least BYTES > 0, aligned to kAlignment. Throws std::bad_alloc.
    [[nodiscard]] void* take(size_t bytes);
    // Returns false if MEMORY is not one of its blocks.
    [[nodiscard]] bool give_back(const void* memory);
    // Returns the bytes of all blocks, unused ones included.
    [[nodiscard]] size_t mapped_bytes() const;

  private:
    struct Block {
        void* memory = nullptr;
        size_t bytes = 0;
        bool used = false;
    };
    // Unmaps unused blocks, the smallest that suffice, one after the other.
    void unmap_unused(size_t mapped_bytes_max);

    mutable std::mutex mutex_;
    std::vector<Block> blocks_;  // a few
    size_t mapped_ = 0;
    size_t used_ = 0;
    size_t used_max_ = 0;
};

}  // namespace dslaunch::runtime
