// libFuzzer entry: reads the input as a chat template, a zero byte, and the JSON object of its
// variables. It is refused with an Error that names a line, or prints the same text each time:
// UTF-8 within the limits, with marks in order.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "base/error.h"
#include "base/text.h"
#include "fuzz/error_checks.h"
#include "text/chat_template/chat_template.h"
#include "text/chat_template/values/compare.h"
#include "text/chat_template/values/json_text.h"

using namespace dslaunch::text;

namespace {

constexpr std::string_view kUsualVariables =
    R"({"messages": [{"role": "user", "content": "Hé <b>"}, {"role": "assistant", "content": "a b",
        "tool_calls": [{"function": {"name": "f", "arguments": {"x": [1, 2.5, null]}}}]}],
        "tools": [{"n": 1}], "add_generation_prompt": true, "s": "a,b", "l": [3, 1, 2]})";

const jinja::Value& usual_variables() {
    static const jinja::Value value = jinja::value_of_json(kUsualVariables);
    return value;
}

TemplateOptions small_limits() {
    TemplateOptions options;
    options.limits.steps_max = 20'000;
    options.limits.memory_bytes_max = size_t{1} << 20;
    options.limits.output_bytes_max = size_t{1} << 16;
    options.now.emplace();
    options.now->tm_mday = 1;
    return options;
}

void check_chat(const RenderedChat& chat, const TemplateOptions& options) {
    using namespace dslaunch;
    DSL_CHECK(chat.text.size() <= options.limits.output_bytes_max, "a text over the limit");
    for (size_t i = 0; i < chat.text.size();) {
        const size_t length = utf8_length(chat.text, i);
        DSL_CHECK(length > 0, "byte {} of a text is no UTF-8", i);
        i += length;
    }
    for (const TextRange& range : chat.generated)
        DSL_CHECK(range.begin_bytes <= range.end_bytes && range.end_bytes <= chat.text.size(),
                  "a mark leaves the text");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t length) {
    using namespace dslaunch;
    const std::string_view input(reinterpret_cast<const char*>(data), length);
    const size_t zero = input.find('\0');
    const TemplateOptions options = small_limits();
    try {
        const ChatTemplate chat = ChatTemplate::parse(input.substr(0, zero), "fuzz");
        jinja::Value given = usual_variables();
        try {
            if (zero != input.npos) given = jinja::value_of_json(input.substr(zero + 1));
        } catch (const jinja::Fault& fault) {
            fuzz::check_shown(printable(fault.what()));
        }
        TemplateVariables variables;
        if (given.is(jinja::ValueKind::kDict))
            for (const auto& [name, value] : given.dict().entries)
                variables.emplace_back(name.text(), value);
        const RenderedChat once = chat.render(variables, options);
        check_chat(once, options);
        const RenderedChat again = chat.render(variables, options);
        DSL_CHECK(again.text == once.text && again.generated == once.generated,
                  "a second time gives another text");
    } catch (const Error& error) {
        DSL_CHECK(error.code() == ExitCode::kInput, "{}", error.what());
        fuzz::check_shown(error.what());
        std::string_view place = error.what();
        DSL_CHECK(place.starts_with("fuzz:"), "an error without its template: {}", place);
        place.remove_prefix(5);
        DSL_CHECK(fuzz::take_number(place) >= 1, "an error without a line: {}", error.what());
    }
    return 0;
}
