// The records of measurements of `dslaunch health`, in the form in which ranks send them to the
// launcher: one record is the payload of one ControlKind::kHealth frame. Data path: dsworker
// health -> agent -> health report. Values, no threads. UNITS: durations in nanoseconds, rates in
// bytes a second.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "base/text/message.h"

namespace dslaunch::health {

// The operations that are measured. The numbers are part of the record's encoding.
enum class HealthOp : uint8_t {
    kBroadcast = 0,  // rank 0 sends to all
    kSendReceive,    // each rank sends to the next one in a ring
    kBarrier,
    kAllReduce,
    kAllGather,
    kReduceScatter,
    kAllToAll,
};
inline constexpr HealthOp kHealthOps[] = {
    HealthOp::kBroadcast, HealthOp::kSendReceive,   HealthOp::kBarrier, HealthOp::kAllReduce,
    HealthOp::kAllGather, HealthOp::kReduceScatter, HealthOp::kAllToAll};

// Returns true if OP is a value of the enum. A damaged record may hold another number.
inline bool is_known(HealthOp op) {
    return op <= HealthOp::kAllToAll;
}

// Returns the name, such as "all_reduce".
[[nodiscard]] const char* health_op_name(HealthOp op);
// Returns bus bandwidth divided by algorithm bandwidth, as nccl-tests computes it: the number of
// bytes that each link must carry for each byte of the operation. Returns 0 for the barrier.
[[nodiscard]] double bus_factor(HealthOp op, int world_size);

// A rank that takes part in the measurements.
struct HealthMember {
    std::string device;      // "cpu", "NVIDIA H200"
    std::string address;     // numeric address where the rank listens during the search
    std::string backend;     // "gloo", "nccl"
    std::string facts = {};  // facts about a GPU: memory, driver, ECC errors, link, other users

    bool operator==(const HealthMember&) const = default;
};

// The mean time of one operation with one message size, on one rank. The results of all iterations
// were verified.
struct HealthTiming {
    HealthOp op = HealthOp::kBarrier;
    int64_t bytes = 0;  // the larger of input and output, as nccl-tests counts
    int64_t iterations = 0;
    int64_t nanoseconds = 0;  // time of one operation

    bool operator==(const HealthTiming&) const = default;
};

// Measurements of the path from one host to another. The sending host makes them. The number of the
// first pass is 1. Later passes repeat the measurements of paths that looked bad.
struct LinkSample {
    int64_t from = 0;  // node ranks; equal: inside the host
    int64_t to = 0;
    int64_t pass = 1;
    int64_t bytes_per_second = 0;  // 0: not measured
    // The rate that the path itself can carry. It does not count the time in which either end
    // waited for a busy processor.
    int64_t free_bytes_per_second = 0;
    int64_t rtt_p50 = 0;  // round-trip time of small messages
    int64_t rtt_p99 = 0;
    int64_t exchanges = 0;   // small messages that were answered
    int64_t lost = 0;        // segments that had to be sent again
    int64_t duplicated = 0;  // segments that arrived twice but were sent once
    int64_t wrong = 0;       // 8-byte words that arrived changed
    std::string error;       // why the path does not work; empty if it works

    bool operator==(const LinkSample&) const = default;
};

// Two GPUs that send to each other at the same time, as fast as they can. The first one reports.
struct GpuPairSample {
    int64_t first = 0;  // first and second are ranks
    int64_t second = 0;
    int64_t bytes_per_second = 0;

    bool operator==(const GpuPairSample&) const = default;
};

// The time that a host's processor takes for work that is the same on all hosts.
struct HostSample {
    int64_t node = 0;
    int64_t pass = 1;
    int64_t nanoseconds = 0;

    bool operator==(const HostSample&) const = default;
};

// A fault that needs no comparison: a wrong element, a rank that does not answer.
struct HealthFault {
    int64_t rank = -1;  // the rank at fault; -1 if it is not a single rank
    std::string text;   // names op, index, expected and found

    bool operator==(const HealthFault&) const = default;
};

// A note about a measurement that was left out, and the reason. A note is not a fault.
struct HealthNote {
    std::string text;

    bool operator==(const HealthNote&) const = default;
};

using HealthRecord = std::variant<HealthMember, HealthTiming, LinkSample, HostSample, HealthFault,
                                  HealthNote, GpuPairSample>;

// Write and read a record in a message: the number of its kind (from 1, in the order of
// HealthRecord), then its members. read() throws Error{kInternal} for an unknown kind, and for
// figures below 0 or over 2^48.
void write(WireWriter& wire, const HealthRecord& record);
void read(WireReader& wire, HealthRecord& record);

// The message of one record, to the launcher.
struct HealthMessage {
    static constexpr const char* kWhat = "a health record";
    HealthRecord record;
};

// The message of several records, from rank to rank.
struct HealthRecords {
    static constexpr const char* kWhat = "health records";
    std::vector<HealthRecord> records;
};

}  // namespace dslaunch::health
