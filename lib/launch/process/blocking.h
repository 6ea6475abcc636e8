// A descriptor whose reads and writes wait, or do not. The flag belongs to everybody who shares it.
#pragma once

#include <fcntl.h>

namespace dslaunch::launch {

inline void set_blocking(int fd, bool blocking) {
    const int flags = ::fcntl(fd, F_GETFL);
    ::fcntl(fd, F_SETFL, blocking ? flags & ~O_NONBLOCK : flags | O_NONBLOCK);
}

}  // namespace dslaunch::launch
