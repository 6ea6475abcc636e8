// The messages that the frames between launcher and agent carry. Each is a plain value with an
// encoder and a decoder; decoders throw Error{kInternal} on malformed bytes and accept no rest.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "launch/plan/job_spec.h"

namespace dslaunch::launch {

// Both sides must agree; a hello begins with it, so that any other version can be named.
inline constexpr uint32_t kAgentProtocolVersion = 1;

struct Hello {
    uint32_t protocol_version = kAgentProtocolVersion;
    bool want_binary_hash = false;
    std::string node_name;  // the launcher's name for this node, for log lines
};

struct AgentHello {
    uint32_t protocol_version = kAgentProtocolVersion;
    std::string version;      // DSL_VERSION
    std::string binary_hash;  // SHA-256 of the executable in hex, empty unless asked for
    std::string host_name;
    int64_t pid = 0;
    int64_t cores = 0;
    int64_t gpus = 0;
    std::string kernel;           // uname -r
    std::string arrival_address;  // the address at which sshd was reached, empty when not known
};

struct CheckRequest {
    std::vector<std::string> paths;
    bool all_bytes = false;  // false: files over 1 GiB by size and 64 sampled blocks
};

struct FileFacts {
    std::string path;
    int64_t bytes = 0;
    std::string hash;   // SHA-256 in hex, of the samples when sampled
    std::string error;  // not empty: the file cannot be read, in words

    bool operator==(const FileFacts&) const = default;
};

struct CheckReply {
    std::vector<FileFacts> files;
};

struct PrepareRequest {
    std::string address;  // to bind, empty: the agent chooses one that the other nodes reach
    int64_t port = 0;     // 0: a free one
    bool loopback_only = false;
};

struct PrepareReply {
    std::string address;
    int64_t port = 0;
};

struct StartRequest {
    TargetKind target_kind = TargetKind::kProgram;
    bool inherit_all = true;
    std::string working_directory;
    EnvironmentList defaults;  // for a worker that has these variables from nowhere else
    BindingRequest binding;
    int64_t machine_ranks = 1;  // that share this machine's processors, those of other hosts of the
                                // job that are this machine too among them
    struct Worker {
        int64_t rank = 0;
        bool takes_rendezvous = false;  // gets the socket of PrepareRequest
        std::vector<std::string> command;
        EnvironmentList environment;
        std::vector<int64_t> expanded;  // as in EnvironmentRules, places in `environment`
    };
    std::vector<Worker> workers;
};

struct SignalRequest {
    int64_t signal_number = 0;
};

struct StopRequest {
    // The job starts again: an agent that came by itself is to come once more.
    bool come_again = false;
};

struct WorkerStarted {
    int64_t rank = 0;
    int64_t pid = 0;
    EnvironmentList environment;  // environment of the rank
};

enum class OutputStream : uint8_t { kStdout = 1, kStderr = 2 };

struct WorkerOutput {
    int64_t rank = 0;
    OutputStream stream = OutputStream::kStdout;
    std::string lines;  // whole lines, each with its newline; of a program the last one may have no
                        // end yet (line_pieces.h)
};

struct WorkerExited {
    int64_t rank = 0;
    int64_t pid = 0;
    int64_t exit_status = 0;    // when signal_number is 0
    int64_t signal_number = 0;  // not 0: ended by it
    bool dumped_core = false;
    std::string start_error;   // not empty: it never ran, in words
    std::string oom_evidence;  // the kernel's counts, in words
    bool told_to_end = false;  // true: its agent had sent it what it ended by
};

struct WorkerControl {
    int64_t rank = 0;
    uint32_t kind = 0;  // ControlKind
    std::string payload;
};

struct AgentProblem {
    uint32_t code = 0;  // ExitCode
    std::string message;
};

[[nodiscard]] std::string encode(const Hello& message);
[[nodiscard]] std::string encode(const AgentHello& message);
[[nodiscard]] std::string encode(const CheckRequest& message);
[[nodiscard]] std::string encode(const CheckReply& message);
[[nodiscard]] std::string encode(const PrepareRequest& message);
[[nodiscard]] std::string encode(const PrepareReply& message);
[[nodiscard]] std::string encode(const StartRequest& message);
[[nodiscard]] std::string encode(const SignalRequest& message);
[[nodiscard]] std::string encode(const StopRequest& message);
[[nodiscard]] std::string encode(const WorkerStarted& message);
[[nodiscard]] std::string encode(const WorkerOutput& message);
[[nodiscard]] std::string encode(const WorkerExited& message);
[[nodiscard]] std::string encode(const WorkerControl& message);
[[nodiscard]] std::string encode(const AgentProblem& message);

// decode<Hello>(bytes), …
template <typename Message>
[[nodiscard]] Message decode(std::string_view bytes);

}  // namespace dslaunch::launch
