// The allocator lets a lender provide the memory of LibTorch's CPU allocations. While a
// LendingScope is open on a thread, each allocation of that thread is offered to the scope's
// MemoryLender first, so that gradients can be computed where they are needed. All other
// allocations get ordinary memory.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>

namespace dslaunch::runtime {

// Provides memory for some allocations of LibTorch.
class MemoryLender {
  public:
    virtual ~MemoryLender() = default;

    // Returns memory for an allocation of BYTES > 0, or nullptr to let it use ordinary memory. The
    // memory is aligned to 64 bytes, is not lent already (is_lent), and no other code reads or
    // writes it while tensors use it.
    [[nodiscard]] virtual void* lend(size_t bytes) = 0;
    // Called after lend() has returned nullptr. MEMORY is the ordinary memory that the allocation
    // got instead.
    virtual void note(const void* memory) = 0;
};

// Offers this thread's allocations to a lender; with nullptr, to no lender.
class LendingScope {
  public:
    explicit LendingScope(MemoryLender* lender);
    LendingScope(const LendingScope&) = delete;
    LendingScope& operator=(const LendingScope&) = delete;
    ~LendingScope();

  private:
    MemoryLender* before_;
};

// Gives each tensor of at least kLargeBlock bytes a block of its own, from now on. Freed blocks are
// kept for later tensors (large_blocks.h). Called before work that repeats, such as training. Other
// work should return its freed memory to the system.
void keep_large_blocks();

// Returns true if MEMORY was lent and a tensor still uses it. Any thread.
[[nodiscard]] bool is_lent(const void* memory);

// Moves the storage of TENSOR out of lent memory into memory of its own. Tensors that share the
// storage move too. The lent memory keeps its contents, and the lender may use it again. Does
// nothing for undefined tensors and tensors in ordinary memory. REQUIRES: no operator is using the
// storage.
void keep_in_own_memory(const at::Tensor& tensor);

}  // namespace dslaunch::runtime
