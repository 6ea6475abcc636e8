#include "base/machine/sending_time.h"

#include <dirent.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>

#include "base/text.h"

namespace dslaunch {

namespace {

// Returns the busy time of a descriptor in microseconds; 0 if it is not a TCP connection.
int64_t busy_us(int fd) {
    struct tcp_info info {};
    socklen_t length = sizeof info;
    if (::getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length) != 0) return 0;
    // Older kernels return a shorter structure, without these fields.
    constexpr size_t kEnd = offsetof(struct tcp_info, tcpi_rwnd_limited) + sizeof(uint64_t);
    if (length < kEnd || info.tcpi_busy_time < info.tcpi_rwnd_limited) return 0;
    return static_cast<int64_t>(info.tcpi_busy_time - info.tcpi_rwnd_limited);
}

}  // namespace

Duration sending_time() {
    const std::unique_ptr<DIR, int (*)(DIR*)> folder(::opendir("/proc/self/fd"), ::closedir);
    if (folder == nullptr) return Duration{0};
    int64_t all_us = 0;
    while (const dirent* const entry = ::readdir(folder.get()))
        if (const auto fd = parse_int(entry->d_name)) all_us += busy_us(static_cast<int>(*fd));
    return std::chrono::duration_cast<Duration>(std::chrono::microseconds(all_us));
}

}  // namespace dslaunch
