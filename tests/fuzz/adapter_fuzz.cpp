// libFuzzer entry: reads the input as an adapter_config.json, a zero byte, and names of tensors.
// The config is refused with an Error that can be shown, or it is the same after it is written and
// read again. A name means the same with PEFT's prefix and without it.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "base/error.h"
#include "fuzz/error_checks.h"
#include "storage/adapter/adapter_config.h"
#include "storage/adapter/adapter_names.h"

using namespace dslaunch;
using namespace dslaunch::storage;

namespace {

void check_config(const AdapterConfig& config) {
    DSL_CHECK(config.r >= 1 && std::isfinite(config.scale()), "an adapter of no rank");
    const AdapterConfig again = parse_adapter_config("again", adapter_config_json(config));
    DSL_CHECK(again.base_model == config.base_model && again.r == config.r &&
                  again.alpha == config.alpha && again.dropout == config.dropout &&
                  again.is_rslora == config.is_rslora &&
                  again.is_transposed == config.is_transposed && again.targets == config.targets &&
                  again.modules_to_save == config.modules_to_save,
              "a config is another one when it is read again");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t length) {
    const std::string_view input(reinterpret_cast<const char*>(data), length);
    const size_t zero = input.find('\0');
    if (zero != input.npos) {
        const std::string name(input.substr(zero + 1));
        const AdapterName plain = read_adapter_name(name);
        const AdapterName prefixed = read_adapter_name(name_in_adapter(name));
        DSL_CHECK(plain.role == prefixed.role && plain.path == prefixed.path,
                  "PEFT's prefix changes what a name says");
        DSL_CHECK(plain.path.size() <= name.size(), "a path has more than its name");
    }
    try {
        check_config(parse_adapter_config("fuzz", input.substr(0, zero)));
    } catch (const Error& error) {
        DSL_CHECK(error.code() == ExitCode::kInput, "{}", error.what());
        fuzz::check_shown(error.what());
    }
    return 0;
}
