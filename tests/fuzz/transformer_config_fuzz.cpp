// libFuzzer entry: reads any bytes as the config.json of a Hugging Face folder. It is read or
// refused with Error. If it is read, its sizes can be multiplied, its heads share keys evenly, and
// there is a factor for every pair that is rotated.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "base/error.h"
#include "fuzz/error_checks.h"
#include "storage/huggingface/transformer_config.h"

using namespace dslaunch;
using namespace dslaunch::storage;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t length) {
    const std::string_view text(reinterpret_cast<const char*>(data), length);
    try {
        const TransformerConfig config = parse_transformer_config("fuzz", text);
        DSL_CHECK(!config.layers.empty() && config.width > 0 && config.vocabulary > 0, "sizes");
        DSL_CHECK(config.heads % config.key_heads == 0, "heads");
        DSL_CHECK(config.heads * config.head_width > 0, "the width of all heads");
        for (const Rope& rope : {config.rope, config.window_rope})
            if (rope.kind == RopeKind::kLong)
                DSL_CHECK(static_cast<int64_t>(rope.long_factors.size()) * 2 == rope.width &&
                              rope.short_factors.size() == rope.long_factors.size(),
                          "factors");
        DSL_CHECK(!config.has_window() || config.window > 0, "window");
        DSL_CHECK(config.padding < config.vocabulary, "padding");
    } catch (const Error& error) {
        DSL_CHECK(error.code() == ExitCode::kInput, "{}", error.what());
        fuzz::check_shown(error.what());
    }
    return 0;
}
