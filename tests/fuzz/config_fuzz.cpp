// libFuzzer entry: any bytes as a config. Nothing may crash, hang or throw; a config that resolves
// must print to an equal one. clang++ -fsanitize=fuzzer,address,undefined with dsl_config; not part
// of the normal build.
#include "base/check.h"
#include "config/resolve/resolve.h"

#include <cstddef>
#include <cstdint>
#include <string_view>

using namespace dslaunch::config;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t bytes_numel) {
    using namespace dslaunch;
    std::string_view text(reinterpret_cast<const char*>(bytes), bytes_numel);
    ResolveOptions options;
    options.world_size = 2;
    Resolved first = resolve(parse_config(text, "fuzz"), options);
    if (first.problems.empty()) {
        Resolved second = resolve(parse_config(config_text(first), "printed"), options);
        DSL_CHECK(second.problems.empty(), "a printed config has problems: {}",
                  second.problems.front().text());
        DSL_CHECK(first.config == second.config, "a printed config resolves differently");
    }
    return 0;
}
