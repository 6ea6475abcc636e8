#include "text/chat_template/objects/attributes.h"

#include "text/chat_template/objects/loop_state.h"
#include "text/chat_template/objects/methods.h"
#include "text/chat_template/objects/slices.h"
#include "text/chat_template/values/compare.h"
#include "text/chat_template/values/letters.h"
#include "text/chat_template/values/points.h"

#include <fmt/format.h>

namespace dslaunch::text::jinja {
namespace {

[[noreturn]] void fail_undefined(const Value& of, std::string_view name) {
    const std::string whose = of.undefined_name();
    throw Fault(whose.empty()
                    ? fmt::format("`{}` is asked of an undefined value", name)
                    : fmt::format("'{}' is undefined, and `{}` is asked of it", whose, name));
}

Value bound_method(Runtime& runtime, const Value& of, const Method& method) {
    return new_function(&runtime.meter(), std::string(method.name), of.depth(),
                        [of, &method](Runtime& inner, Arguments& arguments) {
                            return method.run(inner, of, arguments);
                        });
}

Value cycler_attribute(Runtime& runtime, const Value& of, std::string_view name) {
    Cycler& cycler = of.as<Cycler>();
    if (name == "current") return cycler.items[cycler.at];
    const bool is_next = name == "next";
    if (!is_next && name != "reset") return {};
    return new_function(&runtime.meter(), std::string(name), of.depth(),
                        [of, is_next](Runtime& /*inner*/, Arguments& arguments) {
                            static_cast<void>(bind("the cycler", arguments, {}, 0));
                            Cycler& own = of.as<Cycler>();
                            if (!is_next) return own.at = 0, Value::none();
                            const Value now = own.items[own.at];
                            own.at = (own.at + 1) % own.items.size();
                            return now;
                        });
}

// Sets FOUND to the attribute NAME that Python's object has; false when it has none.
bool python_attribute(Runtime& runtime, const Value& of, std::string_view name, Value& found) {
    if (is_hidden_method(of, name)) return found = Value(), true;
    if (const Method* method = find_method(of, name); method != nullptr)
        return found = bound_method(runtime, of, *method), true;
    switch (of.kind()) {
        case Kind::kNamespace:
            for (const auto& [field, value] : of.as<Namespace>().fields)
                if (field == name) return found = value, true;
            return false;
        case Kind::kLoop:
            found = of.as<LoopState>().attribute(runtime, of, name);
            return true;
        case Kind::kCycler:
            found = cycler_attribute(runtime, of, name);
            return true;
        case Kind::kTuple:
            if (!of.as<Sequence>().is_group) return false;
            if (name == "grouper") return found = of.items()[0], true;
            if (name == "list") return found = of.items()[1], true;
            return false;
        case Kind::kFloat:
            if (name == "real") return found = of, true;
            return false;
        case Kind::kBool:
        case Kind::kInt:
            if (name == "real" || name == "numerator")
                return found = Value::integer(of.integral()), true;
            if (name == "imag") return found = Value::integer(0), true;
            if (name == "denominator") return found = Value::integer(1), true;
            return false;
        case Kind::kLargeInt:
            if (name == "real" || name == "numerator") return found = of, true;
            if (name == "imag") return found = Value::integer(0), true;
            if (name == "denominator") return found = Value::integer(1), true;
            return false;
        case Kind::kRange: {
            const Range& range = of.as<Range>();
            if (name == "start") return found = Value::integer(range.start), true;
            if (name == "stop") return found = Value::integer(range.stop), true;
            if (name == "step") return found = Value::integer(range.step), true;
            return false;
        }
        case Kind::kFunction:
            for (const auto& [known, value] : of.as<Function>().attributes)
                if (known == name) return found = value, true;
            if (name != "name") return false;
            found = new_text(&runtime.meter(), of.as<Function>().name);
            return true;
        default:
            return false;
    }
}

bool is_key(const Value& key) {
    if (key.is(Kind::kList) || key.is(Kind::kDict) || key.is(Kind::kView)) return false;
    if (!key.is(Kind::kTuple)) return true;
    for (const Value& item : key.items())
        if (!is_key(item)) return false;
    return true;
}

}  // namespace

Value attribute_of(Runtime& runtime, const Value& of, const std::string& name) {
    if (of.is(Kind::kUndefined)) fail_undefined(of, name);
    Value found;
    if (python_attribute(runtime, of, name, found)) return found;
    if (of.is(Kind::kDict)) {
        runtime.meter().step_items(of.dict().entries.size());
        const Value* value = find_key(of.dict(), name);
        if (value != nullptr) return *value;
    }
    return Value::undefined(name);
}

Value item_of(Runtime& runtime, const Value& of, const Value& key) {
    if (of.is(Kind::kUndefined))
        fail_undefined(of, key.is(Kind::kText) ? key.text() : "an element");
    if (of.is(Kind::kDict)) {
        const Value* value = is_key(key) ? find_key(runtime.meter(), of.dict(), key) : nullptr;
        if (value != nullptr) return *value;
    } else if (key.is_integral()) {
        return element_of(runtime.meter(), of, key.integral());
    }
    Value found;
    if (key.is(Kind::kText) && !python_attribute(runtime, of, key.text(), found))
        return Value::undefined_key(key);
    return found;
}

Values path_of(Runtime& runtime, const Value& attribute) {
    if (attribute.is(Kind::kNone)) return {};
    if (!attribute.is(Kind::kText)) return {attribute};
    Values path;
    const std::string_view text = attribute.text();
    for (size_t begin = 0; begin <= text.size();) {
        const size_t end = std::min(text.find('.', begin), text.size());
        const std::string part(text.substr(begin, end - begin));
        bool is_number = !part.empty() && part.size() < 18;
        for (const char c : part) is_number = is_number && c >= '0' && c <= '9';
        path.push_back(is_number ? Value::integer(std::stoll(part))
                                 : new_text(&runtime.meter(), part));
        begin = end + 1;
    }
    return path;
}

Value follow_path(Runtime& runtime, Value of, const Values& path, const Value* fallback) {
    for (const Value& part : path) {
        of = item_of(runtime, of, part);
        if (fallback != nullptr && of.is(Kind::kUndefined)) of = *fallback;
    }
    return of;
}

}  // namespace dslaunch::text::jinja
