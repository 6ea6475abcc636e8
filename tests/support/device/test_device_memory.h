// The memory of test devices (test_device.h).
#pragma once

#include <c10/core/Device.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <mutex>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/check.h"

namespace dslaunch::test {

// The memory of all devices: addresses that nobody may touch, and the real addresses of their
// bytes.
class DeviceMemory {
  public:
    static DeviceMemory& instance() {
        static DeviceMemory pool;
        return pool;
    }

    // Returns null if the device has too little memory, or if a test made this allocation fail.
    std::byte* allocate(size_t bytes, c10::DeviceIndex device) {
        const size_t size = (std::max<size_t>(bytes, 1) + kAlignment - 1) / kAlignment * kAlignment;
        const std::lock_guard lock(mutex_);
        Use& use = use_[device];
        if (use.fails_after >= 0 && use.fails_after-- == 0) return nullptr;
        if (use.now + static_cast<int64_t>(bytes) > use.limit.value) return nullptr;
        std::vector<std::byte*>& free = free_[{device, size}];
        std::byte* data = nullptr;
        if (!free.empty()) {
            data = free.back();
            free.pop_back();
        } else {
            data = fake_ + used_;
            used_ += size;
            DSL_CHECK(used_ <= kPoolBytes, "the test devices' addresses are used up");
        }
        lent_[data] = {size, bytes, device};
        use.now += static_cast<int64_t>(bytes);
        use.peak = std::max(use.peak, use.now);
        return data;
    }
    // Frees memory. It may be lent again at once, as by a GPU's allocator, because later work on
    // the same stream runs later. Other streams that still use it read wrong bytes.
    void free(std::byte* data) {
        const std::lock_guard lock(mutex_);
        const auto found = lent_.find(data);
        DSL_CHECK(found != lent_.end(), "freed memory is not a test device's");
        free_[{found->second.device, found->second.bytes}].push_back(data);
        use_[found->second.device].now -= static_cast<int64_t>(found->second.asked);
        lent_.erase(found);
    }
    struct Loan {
        size_t bytes = 0;
        size_t asked = 0;  // the bytes asked for, without alignment
        c10::DeviceIndex device = 0;
    };
    [[nodiscard]] Loan loan(std::byte* data) {
        const std::lock_guard lock(mutex_);
        return lent_.at(data);
    }
    [[nodiscard]] std::byte* kernel(void* data) const {
        auto* const fake = static_cast<std::byte*>(data);
        DSL_CHECK(fake >= fake_ && fake < fake_ + kPoolBytes, "an address of the host in a kernel");
        return real_ + (fake - fake_);
    }

    // Sets the largest number of bytes that DEVICE lends at the same time.
    void set_limit(c10::DeviceIndex device, Bytes limit) {
        const std::lock_guard lock(mutex_);
        use_[device].limit = limit;
    }
    // Lets COUNT allocations of DEVICE succeed, and the next one fail; -1: no allocation fails.
    void fail_allocation(c10::DeviceIndex device, int64_t count) {
        const std::lock_guard lock(mutex_);
        use_[device].fails_after = count;
    }

    // Returns the largest number of bytes that DEVICE had lent at the same time since
    // restart_peak().
    [[nodiscard]] Bytes peak(c10::DeviceIndex device) {
        const std::lock_guard lock(mutex_);
        return Bytes{use_[device].peak};
    }
    void restart_peak(c10::DeviceIndex device) {
        const std::lock_guard lock(mutex_);
        use_[device].peak = use_[device].now;
    }
    // Returns the real address, like kernel(), for a pointer of any type. Null stays null.
    template <typename Value>
    [[nodiscard]] Value* kernel_of(Value* data) const {
        if (data == nullptr) return nullptr;
        return reinterpret_cast<Value*>(kernel(const_cast<std::remove_const_t<Value>*>(data)));
    }

  private:
    // This only reserves addresses: memory is used when it is written.
    static constexpr size_t kPoolBytes = size_t{1} << 34;
    static constexpr size_t kAlignment = 256;

    DeviceMemory() : fake_(reserve(PROT_NONE)), real_(reserve(PROT_READ | PROT_WRITE)) {}
    static std::byte* reserve(int protection) {
        void* const memory = ::mmap(nullptr, kPoolBytes, protection,
                                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        DSL_CHECK(memory != MAP_FAILED, "no addresses for the test devices");
        return static_cast<std::byte*>(memory);
    }

    struct Use {
        int64_t now = 0;
        int64_t peak = 0;
        Bytes limit{std::numeric_limits<int64_t>::max()};
        int64_t fails_after = -1;
    };

    std::byte* fake_;
    std::byte* real_;
    std::mutex mutex_;
    size_t used_ = 0;
    std::map<std::byte*, Loan> lent_;
    std::map<c10::DeviceIndex, Use> use_;
    std::map<std::pair<c10::DeviceIndex, size_t>, std::vector<std::byte*>> free_;
};

}  // namespace dslaunch::test
