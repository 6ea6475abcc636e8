// The identity of the archive that a job trains: its SHA-256. If the user gave a hash, it is
// compared with the archive's hash before any code of the archive runs. Otherwise the hash is only
// logged, by a thread that uses little processor time.
#pragma once

#include <optional>
#include <string>
#include <thread>

#include "launch/files/file_facts.h"

namespace dslaunch::job {

// The result of identify_archive(). Its destructor stops the thread that logs the hash.
struct IdentifiedArchive {
    std::optional<launch::FileIdentity> identity;  // of the file whose hash was compared, if any
    std::jthread log;  // logs the hash; computes for a sixteenth of the time; can be stopped
};

// Identifies an archive. An archive is a program, so an unexpected archive must not run at all.
// Throws Error{kInput} if PATH cannot be read or if its hash is not EXPECTED (64 hex digits);
// blocks while it reads the whole file. If EXPECTED is empty, the FIRST rank starts a thread that
// logs the hash.
[[nodiscard]] IdentifiedArchive identify_archive(const std::string& path,
                                                 const std::string& expected, bool first);
// Returns a text that depends on the contents of the model at PATH: the size and hash of its file,
// or of each file of its folder. The hash of a large file covers only samples of it
// (look_at_file()). Throws Error{kInput} if a file cannot be read; blocks while it reads.
[[nodiscard]] std::string content_mark(const std::string& path);
// Called after PATH has been read once more. Throws Error{kInput} unless PATH is still the file
// whose hash was compared.
void require_unchanged(const IdentifiedArchive& archive, const std::string& path);

}  // namespace dslaunch::job
