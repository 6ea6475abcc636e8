#include "base/machine/files_of_process.h"

#include <unistd.h>

#include <atomic>
#include <csignal>

#include "base/path.h"

namespace dslaunch {

// An entry of the list. Entries are reused and never freed, so that a signal handler may read every
// entry at any time.
struct FileOfProcess {
    std::atomic<bool> is_named{false};  // PATH and FOLDER are complete and do not change
    std::atomic<bool> is_taken{true};   // some thread uses this entry for a file
    std::string path;
    std::string folder;  // the folder to remove too; empty if none
    FileOfProcess* next = nullptr;
};

namespace {

std::atomic<FileOfProcess*> g_files{nullptr};

FileOfProcess* free_entry() {
    for (FileOfProcess* file = g_files.load(); file != nullptr; file = file->next)
        if (!file->is_taken.exchange(true)) return file;
    auto* const made = new FileOfProcess;
    made->next = g_files.load();
    while (!g_files.compare_exchange_weak(made->next, made)) {
    }
    return made;
}

void end_by(int signal_number) {
    remove_files_of_process();
    ::signal(signal_number, SIG_DFL);
    ::raise(signal_number);
}

}  // namespace

FileOfProcess* add_file_of_process(const std::string& path, bool with_folder) {
    FileOfProcess* const file = free_entry();
    file->path = path;
    file->folder = with_folder ? folder_of(path) : "";
    file->is_named = true;
    return file;
}

void forget_file_of_process(FileOfProcess* file) noexcept {
    if (file == nullptr) return;
    file->is_named = false;
    file->is_taken = false;
}

void remove_files_of_process() noexcept {
    for (FileOfProcess* file = g_files.load(); file != nullptr; file = file->next) {
        if (!file->is_named.load()) continue;
        static_cast<void>(::unlink(file->path.c_str()));
        if (!file->folder.empty()) static_cast<void>(::rmdir(file->folder.c_str()));
    }
}

void remove_files_at_signals() {
    for (const int number : {SIGINT, SIGTERM, SIGHUP}) {
        struct sigaction action {};
        if (::sigaction(number, nullptr, &action) != 0 || action.sa_handler != SIG_DFL) continue;
        action = {};
        action.sa_handler = end_by;
        static_cast<void>(::sigaction(number, &action, nullptr));
    }
}

}  // namespace dslaunch
