// libFuzzer entry: reads any bytes as a .deepspeed_env. They are variables that a rank may have, or
// a usage error. Values that were read are the same after they are written in quotes and read
// again.
//
//  clang++ -std=c++20 -g -fsanitize=fuzzer,address,undefined -Ilib -Itests
//  tests/fuzz/environment_fuzz.cpp
//  lib/launch/{environment_file,worker_environment,gpu_count}.cpp
//  lib/base/{error,text,fd,check}.cpp -lfmt
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "base/error.h"
#include "launch/plan/environment_file.h"
#include "support/random_environment.h"

using namespace dslaunch::launch;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size_bytes) {
    using namespace dslaunch;
    const std::string_view text(reinterpret_cast<const char*>(data), size_bytes);
    try {
        const EnvironmentFile file = parse_environment_file(text, "file");
        const std::string other = "a$b";
        EnvironmentList list = file.variables;
        for (const int64_t place : file.expanded) {
            auto& value = list.at(static_cast<size_t>(place)).second;
            value = expand_variables(value, [&](const std::string&) { return &other; });
        }
        // Any bytes can be expanded.
        static_cast<void>(expand_variables(text, [](const std::string&) { return nullptr; }));
        std::string written;
        for (const auto& [name, value] : list) {
            DSL_CHECK(is_variable_name(name), "a name is one");
            DSL_CHECK(!is_rank_variable(name), "no rank's own variable is set");
            DSL_CHECK(value.find('\0') == std::string::npos, "no value holds a NUL");
            written += name + "=" + test::quoted_for_file(value) + "\n";
        }
        const EnvironmentFile again = parse_environment_file(written, "again");
        DSL_CHECK(again.variables == list && again.expanded.empty(),
                  "what is written is read back");
    } catch (const Error& error) {
        DSL_CHECK(error.code() == ExitCode::kUsage, "a bad file is a usage error");
    }
    return 0;
}
