// `value.name` and `value[key]`, the variable `loop`, and the global functions.
#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <iterator>
#include <utility>

#include "text/chat_template/functions/functions.h"
#include "text/chat_template/values/arithmetic.h"
#include "text/chat_template/values/compare.h"
#include "text/chat_template/values/printing.h"

namespace dslaunch::text::jinja {
namespace {

[[noreturn]] void fail_undefined(const Value& of, std::string_view name) {
    const std::string whose = of.undefined_name();
    throw Fault(whose.empty() ? fmt::format("`{}` is read from an undefined value", name)
                              : fmt::format("'{}' is undefined, so `{}` cannot be read from it",
                                            whose, name));
}

// Sets FOUND to the attribute NAME of the value OF. As in Python, an attribute is a method or a
// field. Returns false if OF has no such attribute.
bool python_attribute(Runtime& runtime, const Value& of, std::string_view name, Value& found) {
    if (is_hidden_method(of, name)) return found = Value(), true;
    if (is_refused_method(of, name))
        throw Fault(fmt::format("the method `{}` is not supported", name));
    if (const Native* method = find_method(of, name); method != nullptr) {
        found = new_function(&runtime.meter(), std::string(name), of.depth(),
                             [of, method](Runtime& inner, Arguments& arguments) {
                                 return call_native(inner, *method, of, arguments);
                             });
        return true;
    }
    if (of.is(ValueKind::kLoop))
        return found = of.as<LoopState>().attribute(runtime.meter(), name), true;
    if (of.is(ValueKind::kNamespace))
        for (const auto& [field, value] : of.as<Namespace>().fields)
            if (field == name) return found = value, true;
    for (const char* refused : {"arguments", "caller", "catch_kwargs", "catch_varargs", "name"})
        if (of.is(ValueKind::kFunction) && name == refused)
            throw Fault(fmt::format("the attribute `{}` of a macro is not supported", name));
    constexpr std::string_view kOfRange[] = {"start", "stop", "step"};
    constexpr std::string_view kOfNumber[] = {"real", "imag", "numerator", "denominator"};
    const bool is_number =
        of.is(ValueKind::kFloat) || of.is(ValueKind::kLargeInt) || of.is_integral();
    if ((of.is(ValueKind::kRange) && std::ranges::count(kOfRange, name) > 0) ||
        (is_number && std::ranges::count(kOfNumber, name) > 0))
        throw Fault(fmt::format("the attribute `{}` is not supported", name));
    return false;
}

Value range_function(Runtime& runtime, const Value& /*self*/, const Given& given) {
    const bool has_stop = given[1] != nullptr;
    const int64_t start = has_stop ? given.integer(0) : 0;
    const int64_t stop = given.integer(has_stop ? 1 : 0);
    const int64_t step = given.integer(2, 1);
    if (step == 0) throw Fault("the step of range() must not be 0");
    const auto way =
        step > 0 ? static_cast<__int128>(stop) - start : static_cast<__int128>(start) - stop;
    const auto stride = step > 0 ? static_cast<__int128>(step) : -static_cast<__int128>(step);
    const auto length = way > 0 ? (way - 1) / stride + 1 : 0;
    if (length > kRangeLengthMax)
        throw Fault(fmt::format("a range has {} elements, but at most {} are supported",
                                uint64_t(length), kRangeLengthMax));
    runtime.meter().check_bytes(size_t(length) * sizeof(Value));
    Values items;
    items.reserve(size_t(length));
    for (int64_t i = 0; i < int64_t(length); ++i) items.push_back(Value::integer(start + i * step));
    return new_sequence(&runtime.meter(), ValueKind::kRange, std::move(items));
}

// Returns the entries that Python's dict() makes from a dict or pairs, and from named arguments.
std::vector<Entry> dict_entries(Runtime& runtime, const Arguments& arguments) {
    if (arguments.positional.size() > 1) throw Fault("dict() takes at most one value");
    Meter& meter = runtime.meter();
    std::vector<Entry> entries;
    if (!arguments.positional.empty() && arguments.positional[0].is(ValueKind::kDict)) {
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

Value dict_function(Runtime& runtime, const Value& /*self*/, const Given& given) {
    return new_dict(&runtime.meter(), dict_entries(runtime, given.all()));
}

Value namespace_function(Runtime& runtime, const Value& /*self*/, const Given& given) {
    Value made = runtime.new_namespace();
    for (const auto& [name, value] : dict_entries(runtime, given.all()))
        set_field(made.as<Namespace>(), required_text("namespace()", name), value);
    return made;
}

Value raise_function(Runtime& runtime, const Value& /*self*/, const Given& given) {
    throw Fault("the template raised an error: " + str_of(runtime.meter(), *given[0]));
}

Value now_function(Runtime& runtime, const Value& /*self*/, const Given& given) {
    constexpr size_t kFormatBytesMax = 256;
    constexpr size_t kTextBytesMax = 16 * kFormatBytesMax;
    const std::string& format = given.text(0);
    if (format.size() > kFormatBytesMax) throw Fault("the time format is too long");
    for (size_t at = 0; (at = format.find('%', at)) != std::string::npos; at += 2) {
        constexpr std::string_view kKnown = "aAbBcdHIjmMpSUwWxXyYGeVuDFhnrRtT%";
        if (at + 1 >= format.size() || kKnown.find(format[at + 1]) == kKnown.npos)
            throw Fault("the time format contains a `%` code that is not supported");
    }
    std::string text(kTextBytesMax, '\0');
    // The added space distinguishes an empty result from one that does not fit.
    const size_t bytes =
        std::strftime(text.data(), text.size(), (format + " ").c_str(), &runtime.now());
    if (bytes == 0) throw Fault("the formatted time is too long");
    text.resize(bytes - 1);
    return new_text(&runtime.meter(), std::move(text));
}

Value refused_function(Runtime& /*runtime*/, const Value& /*self*/, const Given& given) {
    throw Fault(fmt::format("`{}` is not supported", given.who()));
}

constexpr Native kGlobals[] = {
    {"dict", dict_function, {"*"}},
    {"namespace", namespace_function, {"*"}},
    {"raise_exception", raise_function, {"message"}, 1},
    {"range", range_function, {"_start", "_stop", "_step"}, 1},
    {"strftime_now", now_function, {"format"}, 1},
    {"cycler", refused_function, {"*"}},
    {"joiner", refused_function, {"*"}},
    {"lipsum", refused_function, {"*"}},
};

}  // namespace

const Native* find_global(std::string_view name) {
    return find_native(kGlobals, name);
}

Value attribute_of(Runtime& runtime, const Value& of, const std::string& name) {
    if (of.is(ValueKind::kUndefined)) fail_undefined(of, name);
    Value found;
    if (python_attribute(runtime, of, name, found)) return found;
    if (of.is(ValueKind::kDict)) {
        runtime.meter().step_items(of.dict().entries.size());
        const Value* value = find_key(of.dict(), name);
        if (value != nullptr) return *value;
    }
    return Value::undefined(name);
}

Value item_of(Runtime& runtime, const Value& of, const Value& key) {
    if (of.is(ValueKind::kUndefined))
        fail_undefined(of, key.is(ValueKind::kText) ? key.text() : "an element");
    if (of.is(ValueKind::kDict)) {
        const Value* value = can_be_key(key) ? find_key(runtime.meter(), of.dict(), key) : nullptr;
        if (value != nullptr) return *value;
    } else if (key.is_integral()) {
        return element_of(runtime.meter(), of, key.integral());
    }
    Value found;
    if (key.is(ValueKind::kText) && !python_attribute(runtime, of, key.text(), found))
        return Value::undefined_key(key);
    return found;
}

void set_field(Namespace& fields, const std::string& name, Value value) {
    if (name.starts_with('_'))
        throw Fault(fmt::format("the field `{}` of a namespace must not begin with `_`", name));
    for (auto& [other, held] : fields.fields) {
        if (other != name) continue;
        held = std::move(value);
        return;
    }
    fields.fields.emplace_back(name, std::move(value));
}

bool LoopState::look_ahead() {
    if (!ahead_.empty()) return true;
    Value item;
    if (!next(item)) return false;
    ahead_.push_back(std::move(item));
    return true;
}

bool LoopState::advance(Value& value) {
    if (!look_ahead()) return false;
    before_ = std::exchange(now_, std::move(ahead_.front()));
    ahead_.pop_front();
    value = now_;
    ++index0_;
    return true;
}

void LoopState::end() {
    ahead_.clear();
    now_ = before_ = {};
    next = [](Value&) { return false; };
}

Value LoopState::attribute(Meter& meter, std::string_view name) {
    if (name == "index") return Value::integer(index0_ + 1);
    if (name == "index0") return Value::integer(index0_);
    if (name == "first") return Value::boolean(index0_ == 0);
    if (name == "last") return Value::boolean(!look_ahead());
    if (name == "previtem") return index0_ == 0 ? Value() : before_;
    if (name == "nextitem") return look_ahead() ? ahead_.front() : Value();
    if (name == "length" || name == "revindex" || name == "revindex0") {
        for (Value item; next(item);) {
            meter.step();
            ahead_.push_back(std::move(item));
        }
        const int64_t rest = std::ssize(ahead_);
        return Value::integer(name == "length"     ? index0_ + 1 + rest
                              : name == "revindex" ? rest + 1
                                                   : rest);
    }
    for (const char* refused : {"changed", "cycle", "depth", "depth0"})
        if (name == refused) throw Fault(fmt::format("`loop.{}` is not supported", name));
    return {};
}

}  // namespace dslaunch::text::jinja
