// The identity of the archive that a job trains: its SHA-256, compared with the user's before any
// of its code runs, or only logged, in idle time.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <thread>

namespace dslaunch::job {

// What the system says of a file that changes when its bytes or its name do.
struct FileIdentity {
    uint64_t device = 0;
    uint64_t inode = 0;
    int64_t bytes = 0;
    int64_t modified_ns = 0;
    int64_t changed_ns = 0;  // a rename, and a write that sets the time back, change it too

    bool operator==(const FileIdentity&) const = default;
};

struct IdentifiedArchive {
    std::optional<FileIdentity> identity;  // of the file whose hash was compared; none: none was
    std::jthread log;  // logs the hash while a processor would be idle; joining it waits for one
                       // reading of the file at most
};

// An archive is a program: one that the user did not expect must not run at all. Throws
// Error{kInput} when PATH cannot be read or is not the file with hash EXPECTED (64 hex digits);
// blocks while it reads the whole file. If EXPECTED is empty, the FIRST rank gets a thread.
[[nodiscard]] IdentifiedArchive identify_archive(const std::string& path,
                                                 const std::string& expected, bool first);
// Called when PATH has been read again: throws Error{kInput} unless it is still the file whose hash
// was compared.
void require_unchanged(const IdentifiedArchive& archive, const std::string& path);

}  // namespace dslaunch::job
