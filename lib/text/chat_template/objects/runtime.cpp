#include "text/chat_template/objects/runtime.h"

#include <fmt/format.h>

#include <algorithm>

namespace dslaunch::text::jinja {

std::vector<const Value*> bind(std::string_view who, const Arguments& arguments,
                               std::initializer_list<std::string_view> names, size_t required) {
    if (arguments.positional.size() > names.size()) {
        throw Fault(fmt::format("{} takes {} arguments at most, and has {}", who, names.size(),
                                arguments.positional.size()));
    }
    std::vector<const Value*> bound(names.size(), nullptr);
    for (size_t i = 0; i < arguments.positional.size(); ++i) bound[i] = &arguments.positional[i];
    for (const auto& [name, value] : arguments.named) {
        const auto found = std::find(names.begin(), names.end(), name);
        if (found == names.end() || name.starts_with('_'))
            throw Fault(fmt::format("{} has no argument `{}`", who, name));
        const Value*& place = bound[size_t(found - names.begin())];
        if (place != nullptr) throw Fault(fmt::format("{} has `{}` twice", who, name));
        place = &value;
    }
    for (size_t i = 0; i < required; ++i) {
        if (bound[i] != nullptr) continue;
        std::string_view name = names.begin()[i];
        if (name.starts_with('_')) name.remove_prefix(1);
        throw Fault(fmt::format("{} needs the argument `{}`", who, name));
    }
    return bound;
}

int64_t whole_number(std::string_view who, const Value* value, int64_t fallback) {
    if (value == nullptr) return fallback;
    if (value->is(Kind::kLargeInt))
        throw Fault(fmt::format("{} has a whole number that does not fit 64 bits", who));
    if (!value->is_integral()) {
        throw Fault(fmt::format("{} needs a whole number and has a value of type {}", who,
                                type_name(*value)));
    }
    return value->integral();
}

const std::string& required_text(std::string_view who, const Value& value) {
    if (!value.is(Kind::kText)) {
        const std::string name = value.undefined_name();
        if (!name.empty()) throw Fault(fmt::format("'{}' is undefined", name));
        throw Fault(
            fmt::format("{} needs a text and has a value of type {}", who, type_name(value)));
    }
    return value.text();
}

}  // namespace dslaunch::text::jinja
