#include "launch/node_report.h"

#include <sys/resource.h>
#include <sys/statvfs.h>

#include <cerrno>
#include <chrono>
#include <optional>

#include "base/error.h"
#include "base/fd.h"
#include "base/text.h"
#include "base/wire.h"

namespace dslaunch {
namespace {

constexpr size_t kProcFileBytesMax = 1U << 20;

void finish(const WireReader& reader, const char* what) {
    if (!reader.done()) fail(ExitCode::kInternal, "{}: bytes are left over", what);
}

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

int64_t limit_of(__rlimit_resource resource) {
    rlimit limit{};
    if (::getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return -1;
    return static_cast<int64_t>(limit.rlim_cur);
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
    WireWriter wire;
    wire.string(message.directory);
    return wire.bytes();
}

ReportRequest decode_report_request(std::string_view bytes) {
    WireReader wire(bytes, "a request for a report");
    ReportRequest message{wire.string()};
    finish(wire, "a request for a report");
    return message;
}

std::string encode(const NodeReport& message) {
    WireWriter wire;
    wire.i64(message.clock_ns).i64(message.memory_bytes).i64(message.memory_free_bytes);
    wire.i64(message.disk_free_bytes).string(message.disk_error);
    wire.i64(message.shared_memory_bytes).i64(message.locked_memory_max);
    wire.i64(message.open_files_max);
    return wire.bytes();
}

NodeReport decode_node_report(std::string_view bytes) {
    WireReader wire(bytes, "a host's report");
    NodeReport message;
    message.clock_ns = wire.i64();
    message.memory_bytes = wire.i64();
    message.memory_free_bytes = wire.i64();
    message.disk_free_bytes = wire.i64();
    message.disk_error = wire.string();
    message.shared_memory_bytes = wire.i64();
    message.locked_memory_max = wire.i64();
    message.open_files_max = wire.i64();
    finish(wire, "a host's report");
    return message;
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
    report.locked_memory_max = limit_of(RLIMIT_MEMLOCK);
    report.open_files_max = limit_of(RLIMIT_NOFILE);
    report.clock_ns = std::chrono::duration_cast<std::chrono::nanoseconds>(
                          std::chrono::system_clock::now().time_since_epoch())
                          .count();
    return report;
}

}  // namespace dslaunch
