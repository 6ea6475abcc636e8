#include "launch/agent/node_report.h"

#include <sys/resource.h>
#include <sys/statvfs.h>

#include <cerrno>
#include <chrono>
#include <optional>

#include "base/error.h"
#include "base/fd.h"
#include "base/text.h"
#include "launch/process/resource_limit.h"
#include "launch/protocol/field_visitor.h"

namespace dslaunch::launch {

template <typename Visitor, Is<ReportRequest> M>
void fields(Visitor& visit, M& m) {
    visit(m.directory);
}
template <typename Visitor, Is<NodeReport> M>
void fields(Visitor& visit, M& m) {
    visit(m.clock_ns), visit(m.memory_bytes), visit(m.memory_free_bytes);
    visit(m.disk_free_bytes), visit(m.disk_error), visit(m.shared_memory_bytes);
    visit(m.locked_memory_max), visit(m.open_files_max);
}

namespace {

constexpr size_t kProcFileBytesMax = 1U << 20;

// "MemAvailable:   123 kB" -> bytes; -1 when there is no such line.
int64_t memory_line(const std::string& text, std::string_view name) {
    for (const std::string& line : split(text, '\n')) {
        if (!line.starts_with(name)) continue;
        std::string_view rest = trim(std::string_view(line).substr(name.size()));
        rest = rest.substr(0, rest.find(' '));
        const auto kibibytes = parse_int(rest);
        return kibibytes ? *kibibytes * 1024 : -1;
    }
    return -1;
}

struct Space {
    int64_t free_bytes = -1;
    int64_t all_bytes = -1;
    int error_number = 0;
};

Space space_at(const std::string& path) {
    struct statvfs facts {};
    if (::statvfs(path.c_str(), &facts) != 0) return {-1, -1, errno};
    const auto block = static_cast<int64_t>(facts.f_frsize);
    return {static_cast<int64_t>(facts.f_bavail) * block,
            static_cast<int64_t>(facts.f_blocks) * block, 0};
}

}  // namespace

std::string encode(const ReportRequest& message) {
    return write_fields(message);
}
std::string encode(const NodeReport& message) {
    return write_fields(message);
}

ReportRequest decode_report_request(std::string_view bytes) {
    return read_fields<ReportRequest>(bytes, "a request for a report");
}
NodeReport decode_node_report(std::string_view bytes) {
    return read_fields<NodeReport>(bytes, "a host's report");
}

NodeReport report_node(const ReportRequest& request) {
    NodeReport report;
    try {
        const std::string memory = read_file("/proc/meminfo", kProcFileBytesMax);
        report.memory_bytes = memory_line(memory, "MemTotal:");
        report.memory_free_bytes = memory_line(memory, "MemAvailable:");
    } catch (const Error&) {
        // -1 says it: this system has no /proc.
    }
    const Space disk = space_at(request.directory);
    report.disk_free_bytes = disk.free_bytes;
    if (disk.error_number != 0) report.disk_error = errno_text(disk.error_number);
    report.shared_memory_bytes = space_at("/dev/shm").all_bytes;
    report.locked_memory_max = soft_limit(RLIMIT_MEMLOCK);
    report.open_files_max = soft_limit(RLIMIT_NOFILE);
    report.clock_ns = std::chrono::duration_cast<std::chrono::nanoseconds>(
                          std::chrono::system_clock::now().time_since_epoch())
                          .count();
    return report;
}

}  // namespace dslaunch::launch
