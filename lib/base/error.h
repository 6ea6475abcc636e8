// Errors that a user or the environment causes, and the exit codes of dslaunch and dsworker. Any
// function may throw an Error; only main() and the top of each thread catch it. Bugs in the program
// are reported with DSL_CHECK (check.h) instead.
#pragma once

#include <fmt/core.h>

#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>

namespace dslaunch {

// The only list of exit codes in the source: README.md has the same table, and a test compares
// them.
enum class ExitCode : int {
    kOk = 0,            // every rank succeeded
    kUsage = 64,        // the command line or the hostfile
    kConfig = 65,       // ds_config.json: unknown key, bad value, something not supported
    kInput = 66,        // the model archive or the data
    kHosts = 67,        // a host cannot be reached or cannot start an agent
    kRankFailed = 68,   // a rank ended with an error or by a signal
    kHang = 69,         // a rank stopped making progress
    kInternal = 70,     // a bug in dslaunch
    kSetup = 71,        // this machine lacks something: library, device, port, limit
    kDisk = 72,         // writing or reading a file failed: full, read-only, I/O error
    kCheckpoint = 73,   // no usable checkpoint, or saving one failed
    kDiverged = 74,     // a non-finite loss, or ranks that do not agree
    kPeerLost = 75,     // this rank ended because another rank was lost
    kInterrupted = 76,  // Ctrl-C, SIGTERM, or the launcher went away
};

// Returns "usage", "config", …: the word used in messages and in --json output.
[[nodiscard]] const char* exit_code_name(ExitCode code);

// Returns true if CODE is one of this program's exit codes and not 0.
[[nodiscard]] bool is_own_code(uint32_t code);

// A failure that a person can act on, and the exit code that the process ends with.
class Error : public std::runtime_error {
  public:
    // MESSAGE says what failed and where (file:line, JSON path, rank and host), the likely cause,
    // and what to do.
    Error(ExitCode code, const std::string& message) : std::runtime_error(message), code_(code) {}

    [[nodiscard]] ExitCode code() const { return code_; }

  private:
    ExitCode code_;
};

// Throws Error{code, formatted message}.
template <typename... Args>
[[noreturn]] void fail(ExitCode code, fmt::format_string<Args...> format, Args&&... args) {
    throw Error(code, fmt::format(format, std::forward<Args>(args)...));
}

// Returns the text for an errno value: "No space left on device (ENOSPC)".
[[nodiscard]] std::string errno_text(int error_number);

}  // namespace dslaunch
