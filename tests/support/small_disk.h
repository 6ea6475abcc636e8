// A disk with little room: a tmpfs in a mount namespace of the test's own.
#pragma once

#include <sched.h>
#include <sys/mount.h>

#include <filesystem>
#include <string>

namespace dslaunch::test {

// Mounts a disk for this thread and its children; it goes with the test's process. SIZE has the
// form of mount, "size=300k". Returns false without root.
inline bool mount_small_disk(const std::string& folder, const std::string& size) {
    static const bool own = ::unshare(CLONE_NEWNS) == 0 &&
                            ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0;
    std::filesystem::create_directories(folder);
    return own && ::mount("none", folder.c_str(), "tmpfs", 0, size.c_str()) == 0;
}

}  // namespace dslaunch::test
