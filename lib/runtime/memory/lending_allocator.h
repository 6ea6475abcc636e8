// Lets somebody else give the memory of LibTorch's CPU allocations: while a LendingScope is open on
// a thread, each allocation of that thread is offered to its MemoryLender first. So gradients can
// be born where they are needed. Other threads, and this one outside of a scope, are served as
// ever.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>

namespace dslaunch::runtime {

class MemoryLender {
  public:
    virtual ~MemoryLender() = default;

    // Memory for an allocation of BYTES > 0, or nullptr: it takes ordinary memory. What is given is
    // aligned to 64 bytes, is not lent already (is_lent), and is read and written by nobody else
    // until the tensors made of it are gone.
    [[nodiscard]] virtual void* lend(size_t bytes) = 0;
    // The allocation that lend() has just left to ordinary memory lies at MEMORY.
    virtual void note(const void* memory) = 0;
};

// Offers this thread's allocations to a lender, nullptr: to nobody.
class LendingScope {
  public:
    explicit LendingScope(MemoryLender* lender);
    LendingScope(const LendingScope&) = delete;
    LendingScope& operator=(const LendingScope&) = delete;
    ~LendingScope();

  private:
    MemoryLender* before_;
};

// From now on tensors of kLargeBlock and more get blocks of their own, which are kept for the next
// ones (large_blocks.h). For the time of training: what a trial takes goes back to the system.
void keep_large_blocks();

// Whether MEMORY was lent and some tensor still lies there. Any thread.
[[nodiscard]] bool is_lent(const void* memory);

// Moves the storage of TENSOR, with all that share it, out of lent memory into memory of its own;
// the lent memory keeps its contents and is returned. Nothing to do for undefined tensors and those
// in ordinary memory. REQUIRES: no operator is at work on that storage.
void keep_in_own_memory(const at::Tensor& tensor);

}  // namespace dslaunch::runtime
