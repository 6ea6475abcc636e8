// libFuzzer entry: takes any records as if the hosts of `dslaunch health` had sent them. The report
// ends, names only hosts and ranks that exist, contains nothing that controls a terminal, and is
// valid JSON. The records follow each other: one byte for the rank, two for the length, then the
// payload.
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/check.h"
#include "base/error.h"
#include "fuzz/error_checks.h"
#include "health/health_report.h"

namespace {

using namespace dslaunch;
using namespace dslaunch::health;

HealthReportOptions three_hosts() {
    HealthReportOptions options;
    options.ranks = {{"n0", 0}, {"n1", 0}, {"n1", 1}, {"n2", 0}};
    options.host_names = {"n0", "n1", "n2"};
    options.min_bus_bandwidth = 0.5;
    return options;
}

void add_records(HealthReport& report, std::string_view bytes) {
    constexpr size_t kHeadBytes = 3;
    while (bytes.size() >= kHeadBytes) {
        const auto at = [&](size_t i) { return static_cast<unsigned char>(bytes[i]); };
        const int rank = at(0) % 4;
        const size_t length = std::min<size_t>(at(1) + (at(2) << 8), bytes.size() - kHeadBytes);
        try {
            report.add(rank, bytes.substr(kHeadBytes, length));
        } catch (const Error& error) {
            DSL_CHECK(error.code() == ExitCode::kInternal, "a bad record is another version's");
            fuzz::check_shown(error.what());
        }
        bytes.remove_prefix(kHeadBytes + length);
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size_bytes) {
    if (size_bytes == 0) return 0;
    const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size_bytes - 1);
    HealthReport report(three_hosts());
    add_records(report, bytes);
    const int job_code = data[0] % 2 == 0 ? 0 : static_cast<int>(ExitCode::kRankFailed);
    report.conclude(job_code);
    for (const HealthFinding& finding : report.findings()) {
        DSL_CHECK(!finding.text.empty(), "a finding says what it is");
        for (const int64_t node : finding.nodes) DSL_CHECK(node >= 0 && node < 3, "a host");
    }
    DSL_CHECK(job_code == 0 || report.exit_code() == job_code, "a failed job stays failed");
    DSL_CHECK(job_code != 0 || (report.exit_code() == 0) == report.findings().empty(),
              "healthy is what has no finding");
    fuzz::check_shown(report.text());
    DSL_CHECK(nlohmann::json::accept(report.json()), "the report is JSON");
    return 0;
}
