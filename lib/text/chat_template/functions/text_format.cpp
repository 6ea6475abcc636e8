// Formats values into a string, as Python's `%` and str.format() do. Supports only plain fields.
#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"
#include "text/chat_template/functions/functions.h"
#include "text/chat_template/values/printing.h"

namespace dslaunch::text::jinja {
namespace {

// Appends VALUE in the format of %s and {} if TYPE is 's', or of %d and {:d} if TYPE is 'd'.
void append_field(Meter& meter, std::string& out, const Value& value, char type) {
    if (type == 'd' && !value.is(ValueKind::kInt))
        throw Fault(fmt::format("a format field for a whole number cannot print a value of type {}",
                                type_name(value)));
    append_str(meter, out, value);
    meter.step_text(out.size());
    meter.check_bytes(out.size());
}

}  // namespace

Value percent_format(Runtime& runtime, const Value& format, const Value& values) {
    const std::string& text = format.text();
    const Values given = values.is(ValueKind::kTuple) ? values.items() : Values{values};
    std::string out;
    size_t used = 0;
    for (size_t at = 0; at < text.size(); ++at) {
        if (text[at] != '%') {
            out += text[at];
            continue;
        }
        const char type = ++at < text.size() ? text[at] : '\0';
        if (type == '%') {
            out += '%';
            continue;
        }
        if (type != 's' && type != 'd')
            throw Fault("the format may contain only %s, %d and %% after a `%`");
        if (used == given.size()) throw Fault("the format needs more values than are given");
        append_field(runtime.meter(), out, given[used++], type);
    }
    if (used < given.size() && !values.is(ValueKind::kDict) && !values.is(ValueKind::kList))
        throw Fault("the format does not use all values");
    return new_text(&runtime.meter(), std::move(out), format.text_object().is_safe);
}

Value brace_format(Runtime& runtime, const Value& format, const Given& given) {
    const std::string_view text = format.text();
    const Values& by_place = given.all().positional;
    std::string out;
    size_t next = 0;
    bool has_numbers = false;
    for (size_t at = 0; at < text.size(); ++at) {
        if (text[at] != '{' && text[at] != '}') {
            out += text[at];
            continue;
        }
        if (at + 1 < text.size() && text[at + 1] == text[at]) {
            out += text[at++];
            continue;
        }
        const size_t end = text.find('}', at);
        if (text[at] == '}' || end == std::string_view::npos)
            throw Fault("the format has an unmatched brace: double a brace to print it");
        std::string_view name = text.substr(at + 1, end - at - 1);
        at = end;
        const size_t colon = std::min(name.find(':'), name.size());
        const std::string_view spec = name.substr(colon);
        name = name.substr(0, colon);
        const auto number = name.size() < 10 ? parse_int(name) : std::nullopt;
        const bool is_counted = name.empty();
        if ((is_counted && has_numbers) || (number && next > 0))
            throw Fault("the format mixes `{}` and numbered fields");
        has_numbers = has_numbers || number.has_value();
        const Value* value = nullptr;
        if (const size_t place = is_counted ? next++ : size_t(number.value_or(-1));
            place < by_place.size())
            value = &by_place[place];
        for (const auto& [other, named] : given.all().named)
            if (other == name) value = &named;
        if (value == nullptr || (!spec.empty() && spec != ":d" && spec != ":"))
            throw Fault(
                fmt::format("the field `{{{}{}}}` of the format has no value, or is not supported: "
                            "use {{}}, {{0}}, {{name}} or {{name:d}}",
                            name, spec));
        append_field(runtime.meter(), out, *value, spec == ":d" ? 'd' : 's');
    }
    return new_text(&runtime.meter(), std::move(out));
}

}  // namespace dslaunch::text::jinja
