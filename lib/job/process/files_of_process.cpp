#include "job/process/files_of_process.h"

#include <unistd.h>

#include <atomic>
#include <csignal>

#include "base/check.h"
#include "base/path.h"

namespace dslaunch::job {
namespace {

// Each file and then its folder, each ended by a zero byte; an empty path ends the list.
std::atomic<const char*> g_paths{nullptr};

void end_by(int signal_number) {
    remove_files_of_process();
    ::signal(signal_number, SIG_DFL);
    ::raise(signal_number);
}

}  // namespace

void remove_at_end(const std::vector<std::string>& files) {
    static std::string paths;
    DSL_CHECK(g_paths.load() == nullptr, "files are named once");
    for (const std::string& file : files) {
        paths += file + '\0';
        paths += folder_of(file) + '\0';
    }
    paths += '\0';
    g_paths = paths.c_str();
    struct sigaction action {};
    action.sa_handler = end_by;
    DSL_CHECK(::sigaction(SIGTERM, &action, nullptr) == 0, "TERM takes a handler");
}

void remove_files_of_process() noexcept {
    const char* path = g_paths.load();
    if (path == nullptr) return;
    const auto next = [&] {
        while (*path != '\0') ++path;
        ++path;
    };
    while (*path != '\0') {
        static_cast<void>(::unlink(path));
        next();
        static_cast<void>(::rmdir(path));
        next();
    }
}

}  // namespace dslaunch::job
