#include "job/files/archive_hash.h"

#include <sys/stat.h>

#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <ctime>
#include <exception>
#include <mutex>
#include <stop_token>
#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "launch/files/file_facts.h"
#include "storage/huggingface/model_folder.h"

namespace dslaunch::job {

namespace {

launch::FileIdentity identity_at(const std::string& path) {
    struct stat status {};
    if (::stat(path.c_str(), &status) != 0) {
        fail(ExitCode::kInput, "{}: cannot be read: {}", path, errno_text(errno));
    }
    return launch::identity_of(status);
}

// Checks the file's hash and returns the identity of the file that was hashed. Throws Error{kInput}
// if the hash is not EXPECTED.
launch::FileIdentity check_archive_hash(const std::string& path, const std::string& expected) {
    const launch::FileIdentity identity = identity_at(path);
    const launch::FileFacts facts = launch::look_at_file(path, /*all_bytes=*/true, [] {});
    if (!facts.error.empty()) fail(ExitCode::kInput, "{}: {}", path, facts.error);
    if (facts.hash != expected)
        fail(ExitCode::kInput,
             "{}: its SHA-256 is {}, not {} as --expect-sha256 says: this is a different file",
             path, facts.hash, printable(expected));
    return identity;
}

// The hash is only for the log, so it waits until the first steps of the job have begun.
constexpr Duration kHeadStart = std::chrono::milliseconds(1500);

// Returns the archive, or the files from which the model of a folder is read.
std::vector<std::string> files_of(const std::string& path) {
    return storage::model_folder_of(path) ? storage::open_model_folder(path).files()
                                          : std::vector{path};
}

class Stopped final : public std::exception {};

// Hashes for at most a sixteenth of a processor's time: after each piece of work, the thread sleeps
// fifteen times as long as it has computed. It does not use SCHED_IDLE instead: a process ends,
// even after SIGKILL, only when each of its threads has run once more, and an idle thread waits
// long for a processor if other processes compute.
std::jthread log_archive_hash(const std::string& path) {
    return std::jthread([path](const std::stop_token& stop) {
        std::mutex mutex;
        std::condition_variable_any stopped;
        const auto sleep_for = [&](Duration time) {
            std::unique_lock lock(mutex);
            stopped.wait_for(lock, stop, time, [] { return false; });
            if (stop.stop_requested()) throw Stopped();
        };
        // Returns the processor time that the thread has used. Waits for a disk or a processor do
        // not count.
        const auto worked = [] {
            timespec time{};
            ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
            return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
        };
        try {
            sleep_for(kHeadStart);
            for (const std::string& file : files_of(path)) {
                auto rested = worked();
                const launch::FileFacts facts = launch::look_at_file(file, /*all_bytes=*/true, [&] {
                    sleep_for(15 * (worked() - rested));
                    rested = worked();
                });
                if (facts.error.empty()) {
                    log_detail("model", "{} sha256={}", file, facts.hash);
                } else {
                    log_warn("model", "{}: cannot compute its SHA-256: {}", file, facts.error);
                }
            }
        } catch (const Stopped&) {
            // The job ended first, and nobody waits for the hash.
        }
    });
}

}  // namespace

IdentifiedArchive identify_archive(const std::string& path, const std::string& expected,
                                   bool first) {
    if (expected.empty()) return {{}, first ? log_archive_hash(path) : std::jthread()};
    const launch::FileIdentity identity = check_archive_hash(path, expected);
    if (first) log_detail("model", "{} sha256={}", path, expected);
    return {identity, {}};
}

std::string content_mark(const std::string& path) {
    std::string mark;
    for (const std::string& file : files_of(path)) {
        const launch::FileFacts facts = launch::look_at_file(file, /*all_bytes=*/false, [] {});
        if (!facts.error.empty()) fail(ExitCode::kInput, "{}: {}", file, facts.error);
        mark += fmt::format("{} {}\n", facts.bytes, facts.hash);
    }
    return mark;
}

void require_unchanged(const IdentifiedArchive& archive, const std::string& path) {
    if (!archive.identity || identity_at(path) == *archive.identity) return;
    fail(ExitCode::kInput,
         "{}: the file was changed or replaced while it was being read, after its SHA-256 had been "
         "compared with --expect-sha256",
         path);
}

}  // namespace dslaunch::job
