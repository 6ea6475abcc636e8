// The exception of the library: a message for a person, and the exit code with which dslaunch
// itself would end. A test checks that the two types here agree with the programs' own types.
#pragma once

#include <stdexcept>
#include <string>

namespace dslaunch {

// The exit codes; docs/help/exit-codes.md explains them.
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

}  // namespace dslaunch
