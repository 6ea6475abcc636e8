// The identity of the archive that a job trains: its SHA-256, compared with the user's before any
// of its code runs, or only logged, by a thread that leaves the processors to the ranks.
#pragma once

#include <optional>
#include <string>
#include <thread>

#include "launch/files/file_facts.h"

namespace dslaunch::job {

struct IdentifiedArchive {
    std::optional<launch::FileIdentity> identity;  // of the file whose hash was compared; none:
                                                   // none was
    std::jthread log;  // logs the hash, computing for a sixteenth of the time; gives up when asked
                       // to stop
};

// Identifies an archive. It is a program: an unexpected one must not run at all. Throws
// Error{kInput} when PATH cannot be read or is not the file with hash EXPECTED (64 hex digits);
// blocks while it reads the whole file. If EXPECTED is empty, the FIRST rank gets a thread.
[[nodiscard]] IdentifiedArchive identify_archive(const std::string& path,
                                                 const std::string& expected, bool first);
// Called when PATH has been read again: throws Error{kInput} unless it is still the file whose hash
// was compared.
void require_unchanged(const IdentifiedArchive& archive, const std::string& path);

}  // namespace dslaunch::job
