// A disk with little room: a tmpfs in the test's own mount namespace.
#pragma once

#include <sched.h>
#include <sys/mount.h>

#include <filesystem>
#include <string>

namespace dslaunch::test {

// Mounts a disk at FOLDER for this thread and its children. It disappears when the test's process
// ends. SIZE has the form of mount, "size=300k". Returns false without root.
inline bool mount_small_disk(const std::string& folder, const std::string& size) {
    static const bool own = ::unshare(CLONE_NEWNS) == 0 &&
                            ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0;
    std::filesystem::create_directories(folder);
    return own && ::mount("none", folder.c_str(), "tmpfs", 0, size.c_str()) == 0;
}

}  // namespace dslaunch::test
