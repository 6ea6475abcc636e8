// libFuzzer entry: reads any bytes as Slurm's node list, task counts or GPU count; the first byte
// selects one. They are within their limits, or are a usage error. It never crashes or hangs.
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "base/error.h"
#include "launch/hosts/slurm_allocation.h"

using namespace dslaunch::launch;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size_bytes) {
    using namespace dslaunch;
    if (size_bytes == 0) return 0;
    const std::string_view text(reinterpret_cast<const char*>(data) + 1, size_bytes - 1);
    try {
        if (data[0] % 3 == 0) {
            const auto names = expand_nodelist(text);
            DSL_CHECK(!names.empty() && names.size() <= static_cast<size_t>(kHostsMax), "bounded");
            for (const std::string& name : names) DSL_CHECK(is_host_name(name), "a host name");
        } else if (data[0] % 3 == 1) {
            const auto counts = expand_task_counts(text);
            DSL_CHECK(counts.size() <= static_cast<size_t>(kHostsMax), "bounded");
            for (const int count : counts) DSL_CHECK(count >= 1 && count <= kSlotsMax, "a count");
        } else {
            const int count = count_slurm_gpus(text).value_or(0);
            DSL_CHECK(count >= 0 && count <= kSlotsMax, "a number of GPUs");
        }
    } catch (const Error& error) {
        DSL_CHECK(error.code() == ExitCode::kUsage, "a bad list is a usage error");
    }
    return 0;
}
