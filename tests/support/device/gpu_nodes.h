// Pretends that a machine has GPUs, by their nodes in /dev.
#pragma once

#include <fmt/format.h>

#include <string>

namespace dslaunch::test {

// Returns shell commands that give their mount namespace a /dev with the nodes of GPUS_COUNT GPUs.
// They make it in FOLDER, which must exist, and fail if mounting or making nodes is not allowed.
inline std::string dev_with_gpus(const std::string& folder, int gpus_count) {
    std::string text =
        "mount -t tmpfs none {0} && cp -a /dev/null /dev/zero /dev/full /dev/random /dev/urandom "
        "/dev/tty {0} && mkdir {0}/shm {0}/pts && mount --bind /dev/shm {0}/shm && mount --rbind "
        "/dev/pts {0}/pts";
    for (int gpu = 0; gpu < gpus_count; ++gpu)
        text += fmt::format(" && mknod {{0}}/nvidia{0} c 195 {0}", gpu);
    text += " && mount --rbind {0} /dev";
    for (size_t at = 0; (at = text.find("{0}", at)) != std::string::npos; at += folder.size())
        text.replace(at, 3, folder);
    return text;
}

}  // namespace dslaunch::test
