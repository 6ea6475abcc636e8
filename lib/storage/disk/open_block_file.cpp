#include "storage/disk/open_block_file.h"

#include <cerrno>
#include <string>
#include <system_error>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"

namespace dslaunch::storage {
namespace {

// Returns the reason why this machine does not let us use io_uring.
std::string uring_refusal(int error_number) {
    const char* cause = "the kernel refuses it";
    if (error_number == -ENOSYS)
        cause = "this kernel does not have it, or a container's seccomp profile hides it";
    if (error_number == -EPERM || error_number == -EACCES)
        cause = "a container's seccomp profile or the sysctl kernel.io_uring_disabled forbids it";
    if (error_number == -ENOMEM) cause = "RLIMIT_MEMLOCK (ulimit -l) is too low for its queue";
    if (error_number == -EMFILE || error_number == -ENFILE) cause = "too many files are open";
    return fmt::format("{}: {}", errno_text(-error_number), cause);
}

std::unique_ptr<BlockFile> open_threads(const BackingFiles& files, const QueueLimits& limits) {
    try {
        return open_thread_file(files, limits);
    } catch (const std::system_error& error) {
        fail(ExitCode::kSetup,
             "{}: cannot start threads for reading and writing: {}; raise the limit of processes "
             "(ulimit -u) or lower aio.queue_depth ({})",
             files.path_at(0), error.what(), limits.depth);
    }
}

}  // namespace

IoEngine parse_io_engine(std::string_view name) {
    for (const IoEngine engine : {IoEngine::kAuto, IoEngine::kUring, IoEngine::kThreads})
        if (name == io_engine_name(engine)) return engine;
    fail(ExitCode::kConfig, "the I/O engine `{}` is unknown; use auto, io_uring or threads",
         printable(name));
}

const char* io_engine_name(IoEngine engine) {
    switch (engine) {
        case IoEngine::kAuto:
            return "auto";
        case IoEngine::kUring:
            return "io_uring";
        case IoEngine::kThreads:
            return "threads";
    }
    return "unknown";
}

std::unique_ptr<BlockFile> open_block_file(const BackingFiles& files, IoEngine engine,
                                           const QueueLimits& limits) {
    if (engine == IoEngine::kThreads) return open_threads(files, limits);
    int error_number = 0;
    std::unique_ptr<BlockFile> file = open_uring_file(files, limits, error_number);
    if (file != nullptr) return file;
    if (engine == IoEngine::kUring)
        fail(ExitCode::kSetup,
             "{}: io_uring cannot be used: {}; set the I/O engine to auto or threads",
             files.path_at(0), uring_refusal(error_number));
    log_warn(
        "storage",
        "{}: io_uring cannot be used: {}. Threads are used instead, which cost more processor time",
        files.path_at(0), uring_refusal(error_number));
    return open_threads(files, limits);
}

}  // namespace dslaunch::storage
