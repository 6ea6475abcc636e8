// The memory that requests take: bodies, values read from them, texts on their way to the engine,
// all connections together. A request that needs more than is left is refused and waits for nobody.
// Data path: sockets -> [here] -> answers of 503. Threads: any; nothing blocks or allocates.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace dslaunch::server {

class MemoryAccount {
  public:
    explicit MemoryAccount(int64_t bytes_max) : left_(bytes_max), bytes_max_(bytes_max) {}
    MemoryAccount(const MemoryAccount&) = delete;
    MemoryAccount& operator=(const MemoryAccount&) = delete;

    // Takes BYTES. Returns false and takes nothing if they are not left.
    [[nodiscard]] bool take(int64_t bytes) noexcept {
        int64_t left = left_.load();
        while (bytes <= left)
            if (left_.compare_exchange_weak(left, left - bytes)) return true;
        return false;
    }
    void give_back(int64_t bytes) noexcept { left_ += bytes; }
    [[nodiscard]] int64_t bytes_taken() const { return bytes_max_ - left_.load(); }
    [[nodiscard]] int64_t bytes_max() const { return bytes_max_; }

  private:
    std::atomic<int64_t> left_;
    int64_t bytes_max_;
};

// Bytes of an account that go back to it at the lease's end. One thread.
class MemoryLease {
  public:
    // ACCOUNT must outlive this.
    explicit MemoryLease(MemoryAccount& account) : account_(&account) {}
    MemoryLease(MemoryLease&& other) noexcept
        : account_(other.account_), bytes_(std::exchange(other.bytes_, 0)) {}
    MemoryLease& operator=(MemoryLease&& other) noexcept {
        if (this != &other) {
            shrink_to(0);
            account_ = other.account_;
            bytes_ = std::exchange(other.bytes_, 0);
        }
        return *this;
    }
    ~MemoryLease() { shrink_to(0); }

    // Returns false and changes nothing if the account has not so much left.
    [[nodiscard]] bool grow(int64_t bytes) noexcept {
        if (!account_->take(bytes)) return false;
        bytes_ += bytes;
        return true;
    }
    void shrink_to(int64_t bytes) noexcept {
        if (bytes >= bytes_) return;
        account_->give_back(bytes_ - bytes);
        bytes_ = bytes;
    }
    [[nodiscard]] int64_t bytes() const { return bytes_; }
    [[nodiscard]] MemoryAccount& account() const { return *account_; }

  private:
    MemoryAccount* account_;
    int64_t bytes_ = 0;
};

// Returns the bytes that reserve() would take of the lease's account first.
template <typename Buffer>
[[nodiscard]] int64_t growth_of(const Buffer& buffer, size_t numel, size_t numel_max = SIZE_MAX) {
    if (numel <= buffer.capacity()) return 0;
    const size_t wanted = std::max(numel, std::min(2 * buffer.capacity(), numel_max));
    return static_cast<int64_t>(wanted * sizeof(typename Buffer::value_type)) + 1;
}

// Makes room for NUMEL elements in BUFFER, a string or a vector of trivial ones, at the cost of
// LEASE. It will never hold more than NUMEL_MAX. Returns false and changes nothing if the account
// is full.
template <typename Buffer>
[[nodiscard]] bool reserve(Buffer& buffer, size_t numel, MemoryLease& lease,
                           size_t numel_max = SIZE_MAX) {
    constexpr auto kUnit = static_cast<int64_t>(sizeof(typename Buffer::value_type));
    const int64_t growth = growth_of(buffer, numel, numel_max);
    if (growth == 0) return true;
    const int64_t before = static_cast<int64_t>(buffer.capacity()) * kUnit;
    // Old and new are there at once while one is copied to the other.
    const int64_t taken = lease.bytes();
    if (!lease.grow(growth)) return false;
    buffer.reserve(static_cast<size_t>(growth / kUnit));
    lease.shrink_to(lease.bytes() - std::min(before, taken));
    return true;
}

}  // namespace dslaunch::server
