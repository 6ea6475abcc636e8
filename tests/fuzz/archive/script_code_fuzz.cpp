// libFuzzer entry: reads any bytes as the code of a TorchScript archive. The code is refused with
// Error, or it is not nested more deeply than the limits allow. The depth is counted by brackets
// and by indentation, outside of strings.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "base/error.h"
#include "fuzz/error_checks.h"
#include "storage/scripted/script_code.h"

namespace {

// Returns the end of the string that begins at AT, as LibTorch's lexer finds it.
size_t text_end(std::string_view code, size_t at) {
    const char quote = code[at];
    const std::string three(3, quote);
    const size_t marks = code.substr(at).starts_with(three) ? 3 : 1;
    size_t end = at + marks;
    while (end < code.size() && !code.substr(end).starts_with(three.substr(0, marks)))
        end += code[end] == '\\' ? 2 : 1;
    return end + marks;
}

int64_t deepest_brackets(std::string_view code) {
    int64_t depth = 0, deepest = 0;
    bool in_comment = false;
    for (size_t at = 0; at < code.size();) {
        const char c = code[at];
        if (c == '\n') in_comment = false;
        if (c == '#') in_comment = true;
        if (!in_comment && (c == '"' || c == '\'')) {
            at = text_end(code, at);
            continue;
        }
        if (c == '(' || c == '[' || c == '{') deepest = std::max(deepest, ++depth);
        if (c == ')' || c == ']' || c == '}') --depth;
        ++at;
    }
    return deepest;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t length) {
    using namespace dslaunch;
    const std::string path = "fuzz";
    const std::string_view code(reinterpret_cast<const char*>(data), length);
    try {
        storage::ScriptCode checked(path);
        checked.add("code/__torch__/a.py", code);
        const int64_t depth = checked.depth();
        const int64_t brackets = deepest_brackets(code);
        DSL_CHECK(brackets <= storage::kOpenTokensMax, "{} brackets", brackets);
        DSL_CHECK(depth >= 0 && depth <= storage::kCodeDepthMax, "depth {}", depth);
    } catch (const Error& error) {
        DSL_CHECK(error.code() == ExitCode::kInput, "{}", error.what());
        fuzz::check_shown(error.what());
    }
    return 0;
}
