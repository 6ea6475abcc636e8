// The allocator lets a lender give the memory of LibTorch's CPU allocations. While a LendingScope
// is open on a thread, each allocation of that thread is offered to its MemoryLender first, so
// gradients can be born where they are needed. Other threads, and this one outside of a scope, get
// ordinary memory.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>

namespace dslaunch::runtime {

class MemoryLender {
  public:
    virtual ~MemoryLender() = default;

    // Returns memory for an allocation of BYTES > 0, or nullptr to let it take ordinary memory. The
    // memory is aligned to 64 bytes, is not lent already (is_lent), and is read and written by
    // nobody else until the tensors made of it are gone.
    [[nodiscard]] virtual void* lend(size_t bytes) = 0;
    // Notes that the allocation which lend() has just left to ordinary memory lies at MEMORY.
    virtual void note(const void* memory) = 0;
};

// Offers this thread's allocations to a lender, or with nullptr to nobody.
class LendingScope {
  public:
    explicit LendingScope(MemoryLender* lender);
    LendingScope(const LendingScope&) = delete;
    LendingScope& operator=(const LendingScope&) = delete;
    ~LendingScope();

  private:
    MemoryLender* before_;
};

// Gives tensors of kLargeBlock and more blocks of their own from now on, which are kept for the
// next ones (large_blocks.h). It is meant for training. A trial's memory should go back to the
// system.
void keep_large_blocks();

// Returns true if MEMORY was lent and some tensor still lies there. Any thread.
[[nodiscard]] bool is_lent(const void* memory);

// Moves the storage of TENSOR, with all that share it, out of lent memory into memory of its own.
// The lent memory keeps its contents and is returned. Does nothing for undefined tensors and
// tensors in ordinary memory. REQUIRES: no operator is at work on that storage.
void keep_in_own_memory(const at::Tensor& tensor);

}  // namespace dslaunch::runtime
