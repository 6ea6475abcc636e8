// The state of a host that `hosts check` asks for: clock, memory, disk, limits. It is measured when
// asked.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace dslaunch::launch {

struct ReportRequest {
    std::string directory;  // whose free space is wanted

    bool operator==(const ReportRequest&) const = default;
};

// Bytes and counts are -1 where the host does not say; limits are -1 for "unlimited".
struct NodeReport {
    int64_t clock_ns = 0;  // CLOCK_REALTIME when the answer was written
    int64_t memory_bytes = -1;
    int64_t memory_free_bytes = -1;    // for new processes, without swapping
    int64_t disk_free_bytes = -1;      // for this user, at ReportRequest::directory
    std::string disk_error;            // the reason why the directory cannot be examined; empty:
                                       // none
    int64_t shared_memory_bytes = -1;  // size of /dev/shm
    int64_t locked_memory_max = -1;    // RLIMIT_MEMLOCK, bytes
    int64_t open_files_max = -1;       // RLIMIT_NOFILE

    bool operator==(const NodeReport&) const = default;
};

[[nodiscard]] std::string encode(const ReportRequest& message);
[[nodiscard]] std::string encode(const NodeReport& message);
// Throw Error{kInternal} on malformed bytes and on bytes left over.
[[nodiscard]] ReportRequest decode_report_request(std::string_view bytes);
[[nodiscard]] NodeReport decode_node_report(std::string_view bytes);

[[nodiscard]] NodeReport report_node(const ReportRequest& request);

}  // namespace dslaunch::launch
