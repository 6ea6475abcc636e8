#include "job/setup/archive_hash.h"

#include <pthread.h>
#include <sched.h>
#include <sys/stat.h>

#include <cerrno>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "launch/files/file_facts.h"

namespace dslaunch::job {

namespace {

launch::FileIdentity identity_at(const std::string& path) {
    struct stat status {};
    if (::stat(path.c_str(), &status) != 0) {
        fail(ExitCode::kInput, "{}: cannot be read: {}", path, errno_text(errno));
    }
    return launch::identity_of(status);
}

// Returns the identity of the file that was hashed.
launch::FileIdentity check_archive_hash(const std::string& path, const std::string& expected) {
    const launch::FileIdentity identity = identity_at(path);
    const launch::FileFacts facts = launch::look_at_file(path, /*all_bytes=*/true, [] {});
    if (!facts.error.empty()) fail(ExitCode::kInput, "{}: {}", path, facts.error);
    if (facts.hash != expected)
        fail(ExitCode::kInput,
             "{}: its SHA-256 is {}, not {} as --expect-sha256 says: this is another file", path,
             facts.hash, printable(expected));
    return identity;
}

std::jthread log_archive_hash(const std::string& path) {
    return std::jthread([path] {
        // The system may refuse this; the thread then takes its turn like any other.
        const sched_param none{};
        (void)::pthread_setschedparam(::pthread_self(), SCHED_IDLE, &none);
        const launch::FileFacts facts = launch::look_at_file(path, /*all_bytes=*/true, [] {});
        if (facts.error.empty()) {
            log_info("model", "{} sha256={}", path, facts.hash);
        } else {
            log_warn("model", "{}: its SHA-256 is not known: {}", path, facts.error);
        }
    });
}

}  // namespace

IdentifiedArchive identify_archive(const std::string& path, const std::string& expected,
                                   bool first) {
    if (expected.empty()) return {{}, first ? log_archive_hash(path) : std::jthread()};
    const launch::FileIdentity identity = check_archive_hash(path, expected);
    if (first) log_info("model", "{} sha256={}", path, expected);
    return {identity, {}};
}

void require_unchanged(const IdentifiedArchive& archive, const std::string& path) {
    if (!archive.identity || identity_at(path) == *archive.identity) return;
    fail(ExitCode::kInput,
         "{}: the file was changed or replaced while it was being read, after its SHA-256 had been "
         "compared with --expect-sha256",
         path);
}

}  // namespace dslaunch::job
