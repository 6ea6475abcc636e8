// The memory that the requests of all connections together may use: for bodies, for values read
// from them, and for texts that are not in the engine yet. A request that needs more than is left
// is refused at once. Data path: sockets -> [here] -> answers with status 503. Threads: any;
// nothing blocks or allocates.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace dslaunch::server {

// A number of bytes, shared by all requests of a server.
class RequestBudget {
  public:
    explicit RequestBudget(int64_t bytes_max) : left_(bytes_max), bytes_max_(bytes_max) {}
    RequestBudget(const RequestBudget&) = delete;
    RequestBudget& operator=(const RequestBudget&) = delete;

    // Takes BYTES from the budget. If fewer are left, returns false and takes nothing.
    [[nodiscard]] bool take(int64_t bytes) noexcept {
        int64_t left = left_.load();
        while (bytes <= left)
            if (left_.compare_exchange_weak(left, left - bytes)) return true;
        return false;
    }
    // Gives back BYTES that take() took.
    void give_back(int64_t bytes) noexcept { left_ += bytes; }
    // Return the bytes that are taken now, and the size of the budget.
    [[nodiscard]] int64_t bytes_taken() const { return bytes_max_ - left_.load(); }
    [[nodiscard]] int64_t bytes_max() const { return bytes_max_; }

  private:
    std::atomic<int64_t> left_;
    int64_t bytes_max_;
};

// Bytes taken from a budget, which are given back when the lease is destroyed. One thread.
class MemoryLease {
  public:
    // BUDGET must outlive this object.
    explicit MemoryLease(RequestBudget& budget) : budget_(&budget) {}
    MemoryLease(MemoryLease&& other) noexcept
        : budget_(other.budget_), bytes_(std::exchange(other.bytes_, 0)) {}
    MemoryLease& operator=(MemoryLease&& other) noexcept {
        if (this != &other) {
            shrink_to(0);
            budget_ = other.budget_;
            bytes_ = std::exchange(other.bytes_, 0);
        }
        return *this;
    }
    ~MemoryLease() { shrink_to(0); }

    // Increases the lease by BYTES. Returns false and changes nothing if the budget has less than
    // BYTES left.
    [[nodiscard]] bool grow(int64_t bytes) noexcept {
        if (!budget_->take(bytes)) return false;
        bytes_ += bytes;
        return true;
    }
    // Reduces the lease to BYTES and gives the rest back. Does nothing if the lease has no more
    // than BYTES.
    void shrink_to(int64_t bytes) noexcept {
        if (bytes >= bytes_) return;
        budget_->give_back(bytes_ - bytes);
        bytes_ = bytes;
    }
    // Returns the bytes that this lease holds.
    [[nodiscard]] int64_t bytes() const { return bytes_; }

  private:
    RequestBudget* budget_;
    int64_t bytes_ = 0;
};

// Returns how many bytes reserve() takes from the budget if BUFFER needs larger memory; 0 if BUFFER
// already has room for NUMEL elements. Once the elements are in the larger memory, reserve() gives
// back the bytes of the old memory.
template <typename Buffer>
[[nodiscard]] int64_t growth_of(const Buffer& buffer, size_t numel, size_t numel_max = SIZE_MAX) {
    if (numel <= buffer.capacity()) return 0;
    const size_t wanted = std::max(numel, std::min(2 * buffer.capacity(), numel_max));
    return static_cast<int64_t>(wanted * sizeof(typename Buffer::value_type)) + 1;
}

// Reserves room for NUMEL elements in BUFFER, a string or a vector of trivial elements, and charges
// LEASE for it. BUFFER will never have more than NUMEL_MAX elements. Returns false and changes
// nothing if the budget is used up.
template <typename Buffer>
[[nodiscard]] bool reserve(Buffer& buffer, size_t numel, MemoryLease& lease,
                           size_t numel_max = SIZE_MAX) {
    constexpr auto kUnit = static_cast<int64_t>(sizeof(typename Buffer::value_type));
    const int64_t growth = growth_of(buffer, numel, numel_max);
    if (growth == 0) return true;
    const int64_t before = static_cast<int64_t>(buffer.capacity()) * kUnit;
    // While the elements are copied, the old and the new memory are both in use, so both are
    // charged.
    const int64_t taken = lease.bytes();
    if (!lease.grow(growth)) return false;
    buffer.reserve(static_cast<size_t>(growth / kUnit));
    lease.shrink_to(lease.bytes() - std::min(before, taken));
    return true;
}

}  // namespace dslaunch::server
