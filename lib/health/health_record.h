// The records of what the ranks of `dslaunch health` measure, in the form in which they travel to
// the launcher: one record is the payload of one ControlKind::kHealth frame. dsworker health ->
// agent -> health report. Values, no threads. UNITS: durations in nanoseconds, rates in bytes a
// second.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace dslaunch::health {

enum class HealthOp : uint8_t {
    kBroadcast = 0,  // rank 0 sends to all
    kSendReceive,    // each rank to the next one, round the ring
    kBarrier,
    kAllReduce,
    kAllGather,
    kReduceScatter,
    kAllToAll,
};
inline constexpr HealthOp kHealthOps[] = {
    HealthOp::kBroadcast, HealthOp::kSendReceive,   HealthOp::kBarrier, HealthOp::kAllReduce,
    HealthOp::kAllGather, HealthOp::kReduceScatter, HealthOp::kAllToAll};

inline bool is_known(HealthOp op) {
    return op <= HealthOp::kAllToAll;
}

// Returns "all_reduce", ….
[[nodiscard]] const char* health_op_name(HealthOp op);
// Returns bus bandwidth over algorithm bandwidth, as nccl-tests computes it: the least that each
// link must carry. 0 for the barrier, which moves nothing.
[[nodiscard]] double bus_factor(HealthOp op, int world_size);

// A rank that takes part.
struct HealthMember {
    std::string device;      // "cpu", "NVIDIA H200"
    std::string address;     // its address, in digits, where it listens for the search
    std::string backend;     // "gloo", "nccl"
    std::string facts = {};  // of a GPU: memory, driver, ECC errors, link, who else holds it

    bool operator==(const HealthMember&) const = default;
};

// One operation of one size on one rank: the mean over its iterations. Each was verified.
struct HealthTiming {
    HealthOp op = HealthOp::kBarrier;
    int64_t bytes = 0;  // the larger of input and output, as nccl-tests counts
    int64_t iterations = 0;
    int64_t nanoseconds = 0;  // one operation's time

    bool operator==(const HealthTiming&) const = default;
};

// The way from one host to another, measured by the sender. `pass` counts from 1: a way that looked
// bad is measured again.
struct LinkSample {
    int64_t from = 0;  // node ranks; equal: inside the host
    int64_t to = 0;
    int64_t pass = 1;
    int64_t bytes_per_second = 0;  // 0: not measured
    // The rate without the time that an end waited for a busy processor: what the way itself can
    // do.
    int64_t free_bytes_per_second = 0;
    int64_t rtt_p50 = 0;  // round-trip time of small messages
    int64_t rtt_p99 = 0;
    int64_t exchanges = 0;   // small messages that were answered
    int64_t lost = 0;        // segments that had to be sent again
    int64_t duplicated = 0;  // segments that came twice though they were sent once
    int64_t wrong = 0;       // 8-byte words that arrived changed
    std::string error;       // not empty: why the way does not work, in words

    bool operator==(const LinkSample&) const = default;
};

// Two GPUs that send to each other at the same time, as fast as they can. The first one reports.
struct GpuPairSample {
    int64_t first = 0;  // ranks
    int64_t second = 0;
    int64_t bytes_per_second = 0;

    bool operator==(const GpuPairSample&) const = default;
};

// A host's processor: how long the same work takes on each.
struct HostSample {
    int64_t node = 0;
    int64_t pass = 1;
    int64_t nanoseconds = 0;

    bool operator==(const HostSample&) const = default;
};

// A fault that needs no comparison: a wrong element, a rank that does not answer.
struct HealthFault {
    int64_t rank = -1;  // the rank at fault, -1: not one alone
    std::string text;   // names op, index, expected and found

    bool operator==(const HealthFault&) const = default;
};

// A note says what was left out and why; it is not a fault.
struct HealthNote {
    std::string text;

    bool operator==(const HealthNote&) const = default;
};

using HealthRecord = std::variant<HealthMember, HealthTiming, LinkSample, HostSample, HealthFault,
                                  HealthNote, GpuPairSample>;

[[nodiscard]] std::string encode(const HealthRecord& record);
// Throws Error{kInternal} for a payload that is not a record, or has figures below 0 or over 2^48.
[[nodiscard]] HealthRecord decode_health(std::string_view payload);

// Encodes several records into one text, and decodes it; decoding throws as decode_health does.
[[nodiscard]] std::string encode_all(const std::vector<HealthRecord>& records);
[[nodiscard]] std::vector<HealthRecord> decode_all_health(std::string_view payload);

}  // namespace dslaunch::health
