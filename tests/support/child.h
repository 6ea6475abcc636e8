// Runs work in a separate process, for tests that give up rights, reach limits or mount disks.
#pragma once

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <exception>
#include <string>

#include "base/error.h"
#include "base/fd.h"

namespace dslaunch::test {

struct ChildResult {
    std::string text;  // the result of WORK, or "threw: MESSAGE"
    std::string err;   // the text that WORK wrote to stderr
    bool ended_well = false;
    int exit_code = -1;  // 0: WORK returned, -1: a signal ended it
};

// Runs WORK() in a child process. WORK returns a std::string; "" usually means that all was well.
template <typename Work>
ChildResult in_child(const Work& work) {
    const UniqueFd text(::memfd_create("text", MFD_CLOEXEC));
    const UniqueFd err(::memfd_create("err", MFD_CLOEXEC));
    const pid_t child = ::fork();
    if (child == 0) {
        ::dup2(err.get(), 2);
        std::string result;
        try {
            result = work();
        } catch (const std::exception& error) {
            result = fmt::format("threw: {}", error.what());
        }
        static_cast<void>(write_full(text.get(), result));
        ::_exit(0);
    }
    int status = 0;
    ChildResult result;
    result.ended_well = child > 0 && ::waitpid(child, &status, 0) == child && WIFEXITED(status);
    if (result.ended_well) result.exit_code = WEXITSTATUS(status);
    const auto content = [](int fd) {
        std::string bytes(1 << 16, '\0');
        const ssize_t length = ::pread(fd, bytes.data(), bytes.size(), 0);
        bytes.resize(static_cast<size_t>(length < 0 ? 0 : length));
        return bytes;
    };
    result.text = content(text.get());
    result.err = content(err.get());
    return result;
}

}  // namespace dslaunch::test
