#include "runtime/memory/large_blocks.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <new>
#include <tuple>

namespace dslaunch::runtime {

namespace {

constexpr size_t kGrain = LargeBlocks::kAlignment;

void* map_aligned(size_t bytes) {
    // Huge pages begin at multiples of their size. They are requested but not required.
    constexpr size_t kHugePage = size_t{2} << 20;
    const size_t room = bytes + kHugePage;
    void* const start =
        ::mmap(nullptr, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (start == MAP_FAILED) throw std::bad_alloc();
    const auto first = reinterpret_cast<uintptr_t>(start);
    const uintptr_t aligned = (first + kHugePage - 1) / kHugePage * kHugePage;
    if (aligned > first) ::munmap(start, aligned - first);
    if (aligned + bytes < first + room)
        ::munmap(reinterpret_cast<void*>(aligned + bytes), first + room - aligned - bytes);
    static_cast<void>(::madvise(reinterpret_cast<void*>(aligned), bytes, MADV_HUGEPAGE));
    return reinterpret_cast<void*>(aligned);
}

}  // namespace

LargeBlocks::~LargeBlocks() {
    for (const Block& block : blocks_) ::munmap(block.memory, block.bytes);
}

void* LargeBlocks::take(size_t bytes) {
    const size_t whole = (bytes + kGrain - 1) / kGrain * kGrain;
    const std::lock_guard lock(mutex_);
    Block* best = nullptr;
    for (Block& block : blocks_) {
        const bool fits = !block.used && block.bytes >= whole &&
                          block.bytes - whole <= block.bytes / kLeftOverDivisor;
        if (fits && (best == nullptr || block.bytes < best->bytes)) best = &block;
    }
    if (best == nullptr) {
        const size_t most = std::max(used_max_, used_ + whole);
        unmap_unused(most - whole);
        void* const memory = map_aligned(whole);
        mapped_ += whole;
        best = &blocks_.emplace_back(Block{memory, whole});
    }
    best->used = true;
    used_ += best->bytes;
    used_max_ = std::max(used_max_, used_);
    return best->memory;
}

void LargeBlocks::unmap_unused(size_t mapped_bytes_max) {
    while (mapped_ > mapped_bytes_max) {
        const size_t excess = mapped_ - mapped_bytes_max;
        // Unmaps one unused block per turn: the smallest block that suffices or, if no block
        // suffices, the largest block.
        const auto rank = [&](const Block& block) {
            const bool suffices = block.bytes >= excess;
            return std::tuple(block.used, !suffices,
                              suffices ? block.bytes : SIZE_MAX - block.bytes);
        };
        const auto victim =
            std::min_element(blocks_.begin(), blocks_.end(),
                             [&](const Block& a, const Block& b) { return rank(a) < rank(b); });
        if (victim == blocks_.end() || victim->used) return;
        ::munmap(victim->memory, victim->bytes);
        mapped_ -= victim->bytes;
        blocks_.erase(victim);
    }
}

bool LargeBlocks::give_back(const void* memory) {
    if (reinterpret_cast<uintptr_t>(memory) % kGrain != 0) return false;
    const std::lock_guard lock(mutex_);
    for (Block& block : blocks_) {
        if (block.memory != memory || !block.used) continue;
        block.used = false;
        used_ -= block.bytes;
        return true;
    }
    return false;
}

size_t LargeBlocks::mapped_bytes() const {
    const std::lock_guard lock(mutex_);
    return mapped_;
}

}  // namespace dslaunch::runtime
