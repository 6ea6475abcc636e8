// Which archive a job trains: its SHA-256, compared with what the user expects before any of its
// code runs, or only logged, in time that nobody else wants.
#pragma once

#include <string>
#include <thread>

namespace dslaunch::job {

// Throws Error{kInput} when PATH cannot be read or is not the file with hash EXPECTED (64 hex
// digits). Blocks while it reads the whole file.
void check_archive_hash(const std::string& path, const std::string& expected);

// Logs the hash of PATH from a thread that runs while a processor would be idle. Joining it waits
// for one reading of the file at most.
[[nodiscard]] std::jthread log_archive_hash(const std::string& path);

}  // namespace dslaunch::job
