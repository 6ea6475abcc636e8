#include "text/chat_template/run/globals.h"

#include "text/chat_template/objects/attributes.h"
#include "text/chat_template/values/compare.h"
#include "text/chat_template/values/printing.h"

#include <fmt/format.h>

#include <ctime>
#include <memory>
#include <utility>

namespace dslaunch::text::jinja {
namespace {

Value make_range(Runtime& runtime, Arguments& arguments) {
    const auto bound = bind("range()", arguments, {"_start", "_stop", "_step"}, 1);
    const int64_t first = whole_number("range()", bound[0]);
    if (bound[1] == nullptr) return new_range(&runtime.meter(), 0, first, 1);
    return new_range(&runtime.meter(), first, whole_number("range()", bound[1]),
                     whole_number("range()", bound[2], 1));
}

// Python's dict(): of a dict or pairs, and of names.
std::vector<Entry> dict_entries(Runtime& runtime, const Arguments& arguments) {
    if (arguments.positional.size() > 1) throw Fault("dict() takes one value at most");
    Meter& meter = runtime.meter();
    std::vector<Entry> entries;
    if (!arguments.positional.empty() && arguments.positional[0].is(Kind::kDict)) {
        entries = arguments.positional[0].dict().entries;
    } else if (!arguments.positional.empty()) {
        for (const Value& pair : all_of(meter, arguments.positional[0])) {
            const Values both = all_of(meter, pair);
            if (both.size() != 2) throw Fault("dict() needs pairs");
            put_entry(meter, entries, both[0], both[1]);
        }
    }
    for (const auto& [name, value] : arguments.named)
        put_entry(meter, entries, new_text(&meter, name), value);
    return entries;
}

Value make_dict(Runtime& runtime, Arguments& arguments) {
    return new_dict(&runtime.meter(), dict_entries(runtime, arguments));
}

Value make_namespace(Runtime& runtime, Arguments& arguments) {
    Value made = runtime.new_namespace();
    for (const auto& [name, value] : dict_entries(runtime, arguments)) {
        if (!name.is(Kind::kText)) throw Fault("a namespace has texts as names");
        set_field(made.as<Namespace>(), name.text(), value);
    }
    return made;
}

Value make_cycler(Runtime& runtime, Arguments& arguments) {
    if (arguments.positional.empty() || !arguments.named.empty())
        throw Fault("cycler() needs values, and without names");
    const Value items = new_tuple(&runtime.meter(), std::move(arguments.positional));
    auto cycler = make_object<Cycler>(&runtime.meter(), 0);
    cycler->items = items.items();
    cycler->depth = items.depth();
    return Value::of(Kind::kCycler, std::move(cycler));
}

Value make_joiner(Runtime& runtime, Arguments& arguments) {
    const auto bound = bind("joiner()", arguments, {"sep"}, 0);
    const Value separator = bound[0] == nullptr ? new_text(&runtime.meter(), ", ") : *bound[0];
    const Value empty = new_text(&runtime.meter(), "");
    auto is_used = std::make_shared<bool>(false);
    return new_function(&runtime.meter(), "joiner", separator.depth(),
                        [separator, empty, is_used](Runtime& /*inner*/, Arguments& given) {
                            static_cast<void>(bind("the joiner", given, {}, 0));
                            return std::exchange(*is_used, true) ? separator : empty;
                        });
}

Value raise(Runtime& runtime, Arguments& arguments) {
    const auto bound = bind("raise_exception()", arguments, {"message"}, 1);
    std::string message;
    if (!bound[0]->is(Kind::kUndefined)) append_str(runtime.meter(), message, *bound[0]);
    throw Fault(fmt::format("the template refuses it: {}", message));
}

Value format_now(Runtime& runtime, Arguments& arguments) {
    constexpr size_t kFormatBytesMax = 256;
    constexpr size_t kTextBytesMax = 16 * kFormatBytesMax;
    const auto bound = bind("strftime_now()", arguments, {"format"}, 1);
    const std::string& format = required_text("strftime_now()", *bound[0]);
    if (format.size() > kFormatBytesMax) throw Fault("the format of a time is too long");
    for (size_t at = 0; (at = format.find('%', at)) != std::string::npos; at += 2) {
        constexpr std::string_view kKnown = "aAbBcdHIjmMpSUwWxXyYGeVuDFhnrRtT%";
        if (at + 1 >= format.size() || kKnown.find(format[at + 1]) == kKnown.npos)
            throw Fault("the format of a time has a `%` that is not supported");
    }
    const std::tm now = runtime.now();
    std::string text(kTextBytesMax, '\0');
    // The space tells an empty text from one that does not fit.
    const size_t bytes = std::strftime(text.data(), text.size(), (format + " ").c_str(), &now);
    if (bytes == 0) throw Fault("the text of a time is too long");
    text.resize(bytes - 1);
    return new_text(&runtime.meter(), std::move(text));
}

Value no_lipsum(Runtime& /*runtime*/, Arguments& /*arguments*/) {
    throw Fault("lipsum() is random text and not supported");
}

constexpr Global kGlobals[] = {
    {"cycler", make_cycler}, {"dict", make_dict},           {"joiner", make_joiner},
    {"lipsum", no_lipsum},   {"namespace", make_namespace}, {"raise_exception", raise},
    {"range", make_range},   {"strftime_now", format_now},
};

}  // namespace

std::span<const Global> global_functions() {
    return kGlobals;
}

void set_field(Namespace& fields, const std::string& name, Value value) {
    if (name.starts_with('_'))
        throw Fault(fmt::format("the field `{}` of a namespace begins with `_`", name));
    for (auto& [other, held] : fields.fields) {
        if (other != name) continue;
        held = std::move(value);
        return;
    }
    fields.fields.emplace_back(name, std::move(value));
}

}  // namespace dslaunch::text::jinja
