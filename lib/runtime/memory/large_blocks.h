// Blocks of memory for the largest tensors. Freed blocks are kept for later tensors. So steps do
// not fault in their pages again, and a small tensor never takes the place of a large one. The
// mapped bytes never exceed the largest number of bytes that were in use at the same time. Used by
// the lending allocator. Any thread.
#pragma once

#include <cstddef>
#include <mutex>
#include <vector>

namespace dslaunch::runtime {

// The blocks of large tensors; freed blocks are kept for later tensors.
class LargeBlocks {
  public:
    static constexpr size_t kAlignment = size_t{64} << 10;
    // At most 1 / kLeftOverDivisor of a block may be unused.
    static constexpr size_t kLeftOverDivisor = 16;

    LargeBlocks() = default;
    LargeBlocks(const LargeBlocks&) = delete;
    LargeBlocks& operator=(const LargeBlocks&) = delete;
    ~LargeBlocks();

    // Returns memory of at least BYTES > 0, aligned to kAlignment. Throws std::bad_alloc.
    [[nodiscard]] void* take(size_t bytes);
    // Takes back the block at MEMORY. Returns false if MEMORY is not one of these blocks.
    [[nodiscard]] bool give_back(const void* memory);
    // Returns the bytes of all blocks, including unused ones.
    [[nodiscard]] size_t mapped_bytes() const;

  private:
    struct Block {
        void* memory = nullptr;
        size_t bytes = 0;
        bool used = false;
    };
    // Unmaps unused blocks, one after the other, until at most MAPPED_BYTES_MAX are mapped. The
    // first choice is the smallest block that suffices, then the largest block.
    void unmap_unused(size_t mapped_bytes_max);

    mutable std::mutex mutex_;
    std::vector<Block> blocks_;  // only a few
    size_t mapped_ = 0;
    size_t used_ = 0;
    size_t used_max_ = 0;
};

}  // namespace dslaunch::runtime
