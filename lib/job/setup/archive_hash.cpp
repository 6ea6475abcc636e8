#include "job/setup/archive_hash.h"

#include <pthread.h>
#include <sched.h>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "launch/files/file_facts.h"

namespace dslaunch::job {

namespace {

void check_archive_hash(const std::string& path, const std::string& expected) {
    const launch::FileFacts facts = launch::look_at_file(path, /*all_bytes=*/true, [] {});
    if (!facts.error.empty()) fail(ExitCode::kInput, "{}: {}", path, facts.error);
    if (facts.hash != expected)
        fail(ExitCode::kInput,
             "{}: its SHA-256 is {}, not {} as --expect-sha256 says: this is another file", path,
             facts.hash, printable(expected));
}

std::jthread log_archive_hash(const std::string& path) {
    return std::jthread([path] {
        // The system may refuse this; the thread then takes its turn like any other.
        const sched_param none{};
        (void)::pthread_setschedparam(::pthread_self(), SCHED_IDLE, &none);
        const launch::FileFacts facts = launch::look_at_file(path, /*all_bytes=*/true, [] {});
        if (facts.error.empty()) {
            log_info("train", "model {} sha256={}", path, facts.hash);
        } else {
            log_warn("train", "model {}: its SHA-256 is not known: {}", path, facts.error);
        }
    });
}

}  // namespace

std::jthread identify_archive(const std::string& path, const std::string& expected, bool first) {
    if (expected.empty()) return first ? log_archive_hash(path) : std::jthread();
    check_archive_hash(path, expected);
    if (first) log_info("train", "model {} sha256={}", path, expected);
    return {};
}

}  // namespace dslaunch::job
