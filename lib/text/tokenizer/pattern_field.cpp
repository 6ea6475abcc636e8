#include "text/tokenizer/pattern_field.h"

#include "base/error.h"
#include "base/text.h"

namespace dslaunch::text {

std::unique_ptr<const Pattern> read_pattern(const JsonPlace& place) {
    const auto [kind, value] = place.only();
    const std::string& text = value.text();
    if (text.empty()) value.refuse("an empty pattern is not supported");
    if (kind == "String") return literal_pattern(text);
    if (kind != "Regex")
        place.refuse(fmt::format("a pattern is a String or a Regex, not `{}`", printable(kind)));
    try {
        return compile_pattern(text);
    } catch (const Error& error) {
        value.refuse(error.what());
    }
}

}  // namespace dslaunch::text
