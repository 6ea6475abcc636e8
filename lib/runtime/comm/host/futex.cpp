#include "runtime/comm/host/futex.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <ctime>

#include "base/check.h"
#include "base/error.h"

namespace dslaunch::runtime {

static_assert(sizeof(std::atomic<uint32_t>) == sizeof(uint32_t) &&
              std::atomic<uint32_t>::is_always_lock_free);

void futex_wait(std::atomic<uint32_t>& word, uint32_t expected, Duration time_limit) {
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(time_limit);
    timespec relative{};
    relative.tv_sec = seconds.count();
    relative.tv_nsec = (time_limit - seconds).count();
    const long status = ::syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAIT,
                                  expected, &relative, nullptr, 0);
    DSL_CHECK(status == 0 || errno == EAGAIN || errno == EINTR || errno == ETIMEDOUT,
              "futex wait: {}", errno_text(errno));
}

void futex_wake_all(std::atomic<uint32_t>& word) {
    const long status = ::syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAKE,
                                  INT_MAX, nullptr, nullptr, 0);
    DSL_CHECK(status >= 0, "futex wake: {}", errno_text(errno));
}

}  // namespace dslaunch::runtime
