// A file as the system tells it from others and from itself at another time: different once its
// bytes or its name have changed. A value type, no threads.
#pragma once

#include <sys/stat.h>

#include <compare>
#include <cstdint>

namespace dslaunch::launch {

inline constexpr int64_t kNanosecondsPerSecond = 1'000'000'000;

struct FileIdentity {
    uint64_t device = 0;
    uint64_t inode = 0;
    int64_t bytes = 0;
    int64_t modified_ns = 0;
    int64_t changed_ns = 0;  // a rename, and a write that sets the time back, change it too

    auto operator<=>(const FileIdentity&) const = default;  // NOLINT(modernize-use-nullptr): no
                                                            // pointer
};

[[nodiscard]] inline int64_t in_nanoseconds(const timespec& time) {
    return int64_t{time.tv_sec} * kNanosecondsPerSecond + time.tv_nsec;
}

[[nodiscard]] inline FileIdentity identity_of(const struct stat& status) {
    return {status.st_dev, status.st_ino, status.st_size, in_nanoseconds(status.st_mtim),
            in_nanoseconds(status.st_ctim)};
}

}  // namespace dslaunch::launch
