// The facts that a host's agent reports about its machine. Data path: hello -> machine facts ->
// check_machines -> start of the workers. check_machines finds differences between the hosts that
// break a job. For `hosts check`, an agent also measures the present state of its host on request.
// No threads.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "base/text/message.h"
#include "launch/network/network.h"

namespace dslaunch::launch {

// The level of x86-64: 1 (any), 2 (SSE4.2), 3 (AVX2, FMA), 4 (AVX-512); 0: another architecture,
// which is not compared.
using IsaLevel = int;

// Payload of FrameKind::kMachineFacts.
struct MachineFacts {
    static constexpr const char* kWhat = "the facts about a machine";
    std::string machine_id;  // boot id and network namespace: equal for two names of one machine
    // Agents see and end only processes in their own namespace: two pods that use the host's
    // network share its addresses, but do not see each other's processes.
    std::string process_namespace;
    std::string cpu_model;
    IsaLevel isa_level = 0;
    std::string glibc;                   // "2.36"
    std::string driver_version;          // version of NVIDIA's kernel module; empty: none is loaded
    std::vector<std::string> gpu_names;  // by PCI address
    int64_t page_bytes = 0;
    int64_t huge_pages_bytes = 0;     // reserved by the administrator
    int64_t memlock_bytes_max = 0;    // limit of one process; -1: none
    int64_t open_files_max = 0;       // -1: no limit
    int64_t shared_memory_bytes = 0;  // size of /dev/shm; 0: there is none
    std::vector<InterfaceAddress> addresses;

    bool operator==(const MachineFacts&) const = default;
};

// Returns the name of the first processor in CPUINFO, the text of /proc/cpuinfo; empty if it names
// none. On ARM, CPUINFO contains only numbers: if the processor with these numbers is not known,
// returns the numbers.
[[nodiscard]] std::string processor_model(const std::string& cpuinfo);

// Returns this machine's facts; what cannot be read stays empty. Takes under a millisecond. ROOT:
// "" for this machine; a test gives a folder with its own proc/.
[[nodiscard]] MachineFacts look_at_machine(const std::string& root);

// Returns one JSON object with every member, for run.json and --json.
[[nodiscard]] std::string machine_json(const MachineFacts& facts);

// The needs of dsworker, which some machines cannot meet.
struct WorkerNeeds {
    IsaLevel isa_level = 0;
    std::string glibc;  // the newest version that it asks for; empty: not known
    bool cuda = false;  // ranks run on GPUs
};
// Returns the needs of dsworker, which is built with the same flags as this program. WORKER is its
// path. Throws Error{kSetup} if it is not a program for this machine.
[[nodiscard]] WorkerNeeds needs_of_worker(const std::string& worker, bool cuda);

// Returns the problem of each host in words, or an empty text for a host that has no problem. A
// mere difference, such as another kernel or CPU, is not a problem. But a driver version is a
// problem if most hosts have a different one. If two versions are equally frequent, the first one
// counts as the version that most hosts have.
[[nodiscard]] std::vector<std::string> check_machines(const std::vector<MachineFacts>& machines,
                                                      const WorkerNeeds& needs);

// Payload of FrameKind::kReportRequest.
struct ReportRequest {
    static constexpr const char* kWhat = "a request for a report";
    std::string directory;  // the folder whose free space is asked for

    bool operator==(const ReportRequest&) const = default;
};

// Bytes and counts are -1 if the host does not report them; limits are -1 for "unlimited".
struct NodeReport {
    static constexpr const char* kWhat = "a host's report";
    int64_t clock_ns = 0;  // CLOCK_REALTIME when the answer was written
    int64_t memory_bytes = -1;
    int64_t memory_free_bytes = -1;    // for new processes, without swapping
    int64_t disk_free_bytes = -1;      // free for this user, at ReportRequest::directory
    std::string disk_error;            // the reason why the directory cannot be examined; empty:
                                       // none
    int64_t shared_memory_bytes = -1;  // size of /dev/shm
    int64_t locked_memory_max = -1;    // RLIMIT_MEMLOCK, bytes
    int64_t open_files_max = -1;       // RLIMIT_NOFILE

    bool operator==(const NodeReport&) const = default;
};

// Measures this machine now.
[[nodiscard]] NodeReport report_node(const ReportRequest& request);

// The difference between another machine's clock and ours, measured with one question and its
// answer: the true difference is within BOUND of OFFSET.
struct ClockOffset {
    std::chrono::nanoseconds offset{0};  // the host's clock minus this one
    std::chrono::nanoseconds bound{0};
};

// The largest clock difference that is not reported as a fault; the measurement's error bound is
// added to it. With a larger difference, TLS, logs and file times stop making sense.
inline constexpr std::chrono::seconds kClockOffsetMax{2};

// Returns the offset. ASKED and ANSWERED: the times, by our clock, when the question was sent and
// when the answer arrived.
[[nodiscard]] ClockOffset clock_offset(std::chrono::nanoseconds asked,
                                       std::chrono::nanoseconds answered,
                                       std::chrono::nanoseconds theirs);

// Returns the fault of the clock in words; empty if the clock may be right, within the error bound
// and kClockOffsetMax.
[[nodiscard]] std::string describe_clock(const ClockOffset& clock);

}  // namespace dslaunch::launch
