// The messages that the frames between launcher and agent carry (base/text/message.h).
#pragma once

#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include "base/text/message.h"
#include "launch/plan/job_spec.h"

namespace dslaunch::launch {

using dslaunch::decode;
using dslaunch::encode;

// Both sides must have the same version. A hello of every version begins with its version number,
// so each side can report that the versions differ, even if it does not know all members.
inline constexpr uint32_t kAgentProtocolVersion = 1;

// Payload of FrameKind::kHello.
struct Hello {
    static constexpr const char* kWhat = "hello";
    static constexpr uint32_t kVersion = kAgentProtocolVersion;
    // Returns the members that every version of this message has.
    static auto wire_beginning(Hello& m) { return std::tie(m.protocol_version); }

    uint32_t protocol_version = kAgentProtocolVersion;
    bool want_binary_hash = false;
    std::string node_name;  // the launcher's name for this node, for log lines
};

// Payload of FrameKind::kAgentHello.
struct AgentHello {
    static constexpr const char* kWhat = "the agent's hello";
    static constexpr uint32_t kVersion = kAgentProtocolVersion;
    // Returns the members that every version of this message has.
    static auto wire_beginning(AgentHello& m) { return std::tie(m.protocol_version, m.version); }

    uint32_t protocol_version = kAgentProtocolVersion;
    std::string version;      // DSL_VERSION
    std::string binary_hash;  // SHA-256 of the executable in hex, empty unless asked for
    std::string host_name;
    int64_t pid = 0;
    int64_t cores = 0;
    int64_t gpus = 0;
    std::string kernel;           // uname -r
    std::string arrival_address;  // the address at which sshd was reached, empty when not known
    std::string processor;        // uname -m, "x86_64"; empty when not known
};

// Payload of FrameKind::kCheck.
struct CheckRequest {
    static constexpr const char* kWhat = "a request to check files";
    std::vector<std::string> paths;
    bool all_bytes = false;  // false: compare files over 1 GiB by size and 64 sampled blocks
};

// The facts about one file on one host. The launcher compares the facts of different hosts.
struct FileFacts {
    std::string path;
    int64_t bytes = 0;
    std::string hash;   // SHA-256 in hex, of all bytes or of the samples
    std::string error;  // why the file cannot be read, in words; else empty

    bool operator==(const FileFacts&) const = default;
};

// Payload of FrameKind::kChecked: the facts in the order of the request.
struct CheckReply {
    static constexpr const char* kWhat = "an answer about files";
    std::vector<FileFacts> files;
};

// Payload of FrameKind::kPrepare.
struct PrepareRequest {
    static constexpr const char* kWhat = "a request for the rendezvous socket";
    std::string address;  // address to bind; empty: the agent chooses an address that the other
                          // nodes reach
    int64_t port = 0;     // 0: a free port
    bool loopback_only = false;
};

// Payload of FrameKind::kPrepared: the address and port where the ranks meet.
struct PrepareReply {
    static constexpr const char* kWhat = "an answer about the rendezvous socket";
    std::string address;
    int64_t port = 0;
};

// Payload of FrameKind::kStart.
struct StartRequest {
    static constexpr const char* kWhat = "a request to start workers";

    // One worker to start.
    struct Worker {
        bool is_rank = false;     // false: a command that is not a rank and has no place
        WorkerEnvironment place;  // without descriptors; rank 0 gets the socket of PrepareRequest
        std::vector<std::string> command;
        EnvironmentList environment;    // set before the variables of `place`
        std::vector<int64_t> expanded;  // as in EnvironmentRules, indices in `environment`
    };

    TargetKind target_kind = TargetKind::kProgram;
    bool inherit_all = true;
    std::string working_directory;
    std::vector<Worker> workers;
    EnvironmentList defaults;  // variables for workers that have no other value for them
    BindingRequest binding;
    int64_t machine_ranks = 1;  // ranks on this machine, which may be several hosts of the job
};

// Payload of FrameKind::kSignal and kAskedToEnd.
struct SignalRequest {
    static constexpr const char* kWhat = "a request to signal workers";
    int64_t signal_number = 0;
};

// Payload of FrameKind::kStop.
struct StopRequest {
    static constexpr const char* kWhat = "a request to end";
    // True if the job starts again: an agent that connected by itself must then connect again.
    bool come_again = false;
};

// Payload of FrameKind::kStarted.
struct WorkerStarted {
    static constexpr const char* kWhat = "the report of a started worker";
    int64_t rank = 0;
    int64_t pid = 0;
    EnvironmentList environment;  // environment of the rank
};

// The stream on which a worker wrote.
enum class OutputStream : uint8_t { kStdout = 1, kStderr = 2 };
// Returns true if STREAM is a value of the enum; values in messages are checked with this function.
inline bool is_known(OutputStream stream) {
    return stream == OutputStream::kStdout || stream == OutputStream::kStderr;
}

// Payload of FrameKind::kOutput.
struct WorkerOutput {
    static constexpr const char* kWhat = "output of a worker";
    int64_t rank = 0;
    OutputStream stream = OutputStream::kStdout;
    std::string lines;  // whole lines, each with its newline; the last line of a program, or of
                        // rank 0's stdout, may be incomplete (process/line_splitter.h)
};

// Payload of FrameKind::kExited.
struct WorkerExited {
    static constexpr const char* kWhat = "the report of an ended worker";
    int64_t rank = 0;
    int64_t pid = 0;
    int64_t exit_status = 0;    // when signal_number is 0
    int64_t signal_number = 0;  // not 0: the signal that ended it
    bool dumped_core = false;
    std::string start_error;   // why it never ran, in words; else empty
    std::string oom_evidence;  // processes that the kernel killed for lack of memory, in words
    bool told_to_end = false;  // true: it ended as its agent had asked
};

// Payload of FrameKind::kControl: a frame that a worker sent (control.h).
struct WorkerControl {
    static constexpr const char* kWhat = "a worker's control frame";
    int64_t rank = 0;
    uint32_t kind = 0;  // ControlKind
    std::string payload;
};

// Payload of FrameKind::kProblem and ControlKind::kFailure.
struct AgentProblem {
    static constexpr const char* kWhat = "an agent's report of a problem";
    uint32_t code = 0;  // ExitCode
    std::string message;
};

}  // namespace dslaunch::launch
