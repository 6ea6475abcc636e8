#include "runtime/memory/lending_allocator.h"

#include <c10/core/CPUAllocator.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "base/check.h"
#include "plan/model/model_info.h"
#include "runtime/memory/large_blocks.h"

namespace dslaunch::runtime {

namespace {

constexpr uintptr_t kAlignmentBytes = 64;  // the alignment that LibTorch's own allocator promises

thread_local MemoryLender* current_lender = nullptr;

class LendingAllocator final : public c10::Allocator {
  public:
    explicit LendingAllocator(c10::Allocator& ordinary)
        : ordinary_(ordinary), ordinary_deleter_(ordinary.raw_deleter()) {}

    c10::DataPtr allocate(size_t bytes) override {
        MemoryLender* const lender = current_lender;
        if (lender == nullptr || bytes == 0) return allocate_ordinary(bytes);
        if (void* const memory = lender->lend(bytes)) {
            begin_loan(memory);
            return {memory, memory, &release, c10::Device(c10::kCPU)};
        }
        c10::DataPtr data = allocate_ordinary(bytes);
        lender->note(data.get());
        return data;
    }
    // All allocations have the same deleter, which needs only the data pointer. Therefore
    // raw_allocate (which oneDNN uses) works with lent memory too.
    [[nodiscard]] c10::DeleterFnPtr raw_deleter() const override { return &release; }
    void copy_data(void* to, const void* from, size_t bytes) const override {
        default_copy_data(to, from, bytes);
    }

    c10::DataPtr allocate_ordinary(size_t bytes) {
        if (bytes >= large_bytes_min_.load(std::memory_order_relaxed)) {
            void* const memory = large_.take(bytes);
            return {memory, memory, &release, c10::Device(c10::kCPU)};
        }
        c10::DataPtr data = ordinary_.allocate(bytes);
        DSL_CHECK(data.compare_exchange_deleter(ordinary_deleter_, &release),
                  "LibTorch's CPU allocator gives memory that it cannot free by address");
        return data;
    }

    [[nodiscard]] bool is_lent(const void* memory) {
        if (loan_count_.load(std::memory_order_acquire) == 0) return false;
        const std::lock_guard lock(mutex_);
        return std::find(loans_.begin(), loans_.end(), memory) != loans_.end();
    }

    void keep_large_blocks() { large_bytes_min_ = static_cast<size_t>(plan::kLargeBlock.value); }

  private:
    static void release(void* memory);

    void begin_loan(const void* memory) {
        DSL_CHECK(reinterpret_cast<uintptr_t>(memory) % kAlignmentBytes == 0,
                  "lent memory is not aligned to {} bytes", kAlignmentBytes);
        const std::lock_guard lock(mutex_);
        DSL_CHECK(std::find(loans_.begin(), loans_.end(), memory) == loans_.end(),
                  "memory that a tensor still uses cannot be lent again");
        loans_.push_back(memory);
        loan_count_.store(loans_.size(), std::memory_order_release);
    }

    // Ends the loan of MEMORY. Returns true if it was lent.
    [[nodiscard]] bool end_loan(const void* memory) {
        if (loan_count_.load(std::memory_order_acquire) == 0) return false;
        const std::lock_guard lock(mutex_);
        const auto found = std::find(loans_.begin(), loans_.end(), memory);
        if (found == loans_.end()) return false;
        loans_.erase(found);
        loan_count_.store(loans_.size(), std::memory_order_release);
        return true;
    }

    c10::Allocator& ordinary_;
    c10::DeleterFnPtr ordinary_deleter_;
    std::mutex mutex_;
    std::vector<const void*> loans_;  // few: a loan lasts from a gradient's allocation to its hook
    std::atomic<size_t> loan_count_ = 0;  // makes the lock unnecessary while nothing is lent
    LargeBlocks large_;
    std::atomic<size_t> large_bytes_min_ = SIZE_MAX;
};

// The allocator is installed before main, because LibTorch reads the pointer from any thread
// without a lock. It is never destroyed, since tensors are freed until the process ends.
LendingAllocator& allocator = []() -> LendingAllocator& {
    LendingAllocator* const made =
        std::make_unique<LendingAllocator>(*c10::GetCPUAllocator()).release();
    c10::SetCPUAllocator(made, /*priority=*/1);
    return *made;
}();

void LendingAllocator::release(void* memory) {
    if (allocator.end_loan(memory) || allocator.large_.give_back(memory)) return;
    allocator.ordinary_deleter_(memory);
}

}  // namespace

LendingScope::LendingScope(MemoryLender* lender) : before_(std::exchange(current_lender, lender)) {}

LendingScope::~LendingScope() {
    current_lender = before_;
}

void keep_large_blocks() {
    allocator.keep_large_blocks();
}

bool is_lent(const void* memory) {
    return allocator.is_lent(memory);
}

void keep_in_own_memory(const at::Tensor& tensor) {
    if (!tensor.defined() || !tensor.has_storage()) return;
    c10::StorageImpl* const storage = tensor.storage().unsafeGetStorageImpl();
    if (!is_lent(storage->data())) return;
    c10::DataPtr own = allocator.allocate_ordinary(storage->nbytes());
    std::memcpy(own.get(), storage->data(), storage->nbytes());
    storage->set_data_ptr_noswap(std::move(own));
}

}  // namespace dslaunch::runtime
