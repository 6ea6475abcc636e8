// libFuzzer entry: reads any bytes as a hostfile. Its hosts obey the grammar and are equal after
// they are written and read again, or it is a usage error that names lines and columns of the file.
// It never crashes or hangs.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "base/error.h"
#include "fuzz/error_checks.h"
#include "launch/hosts/hostfile.h"

namespace {

using namespace dslaunch;
using namespace dslaunch::launch;

// The number of hosts that are written. One range may stand for thousands of hosts that differ only
// in their number.
constexpr size_t kWrittenMax = 64;

std::string written(const Host& host) {
    std::string text = host.user.empty() ? host.name : fmt::format("{}@{}", host.user, host.name);
    text += host.gpus.empty() ? fmt::format(" slots={}", host.slots)
                              : fmt::format(" gpus={}", fmt::join(host.gpus, ","));
    if (host.port != 0) text += fmt::format(" port={}", host.port);
    if (!host.address.empty()) text += fmt::format(" addr={}", host.address);
    return text + "\n";
}

bool same(const Host& a, const Host& b) {
    return a.name == b.name && a.user == b.user && a.port == b.port && a.address == b.address &&
           a.slots == b.slots && a.gpus == b.gpus;
}

void check_hosts(std::vector<Host> hosts) {
    DSL_CHECK(!hosts.empty(), "an accepted hostfile has a host");
    for (const Host& host : hosts) {
        DSL_CHECK(is_host_name(host.name), "a host name obeys the grammar");
        DSL_CHECK(host.slots >= 1 && host.slots <= kSlotsMax, "slots are bounded");
        DSL_CHECK(host.gpus.empty() || host.slots == static_cast<int>(host.gpus.size()),
                  "a slot is a GPU");
    }
    hosts.resize(std::min(hosts.size(), kWrittenMax));
    std::string text;
    for (const Host& host : hosts) text += written(host);
    const std::vector<Host> again = parse_hostfile(text, "again");
    DSL_CHECK(again.size() == hosts.size(), "what is written has as many hosts");
    for (size_t i = 0; i < hosts.size(); ++i) {
        DSL_CHECK(same(again[i], hosts[i]), "{} is read back as it was written", hosts[i].name);
        DSL_CHECK(again[i].line == static_cast<int>(i) + 1, "each stands on its line");
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size_bytes) {
    const std::string_view text(reinterpret_cast<const char*>(data), size_bytes);
    std::vector<Host> hosts;
    try {
        hosts = parse_hostfile(text, "hostfile");
    } catch (const Error& error) {
        DSL_CHECK(error.code() == ExitCode::kUsage, "a bad hostfile is a usage error");
        fuzz::check_shown(error.what());
        fuzz::check_places(error.what(), "hostfile", text);
        return 0;
    }
    check_hosts(std::move(hosts));
    return 0;
}
