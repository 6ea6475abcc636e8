// libFuzzer: any bytes are either a hostfile whose hosts obey the grammar, or a usage error; never
// a crash or a hang.
//   clang++ -std=c++20 -g -fsanitize=fuzzer,address,undefined -Ilib tests/fuzz/hostfile_fuzz.cpp
//   lib/launch/hostfile.cpp lib/base/{error,text,fd,check}.cpp -lfmt -o /tmp/hostfile_fuzz &&
//   /tmp/hostfile_fuzz hostfiles hostfiles/bad
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "base/error.h"
#include "launch/hostfile.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size_bytes) {
    using namespace dslaunch;
    const std::string_view text(reinterpret_cast<const char*>(data), size_bytes);
    try {
        const std::vector<Host> hosts = parse_hostfile(text, "hostfile");
        DSL_CHECK(!hosts.empty(), "an accepted hostfile has a host");
        for (const Host& host : hosts) {
            DSL_CHECK(is_host_name(host.name), "a host name obeys the grammar");
            DSL_CHECK(host.slots >= 1 && host.slots <= kSlotsMax, "slots are bounded");
            DSL_CHECK(host.gpus.empty() || host.slots == static_cast<int>(host.gpus.size()),
                      "a slot is a GPU");
        }
    } catch (const Error& error) {
        DSL_CHECK(error.code() == ExitCode::kUsage, "a bad hostfile is a usage error");
    }
    return 0;
}
