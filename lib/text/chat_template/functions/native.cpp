#include "text/chat_template/functions/native.h"

#include <fmt/format.h>

#include <algorithm>

#include "text/chat_template/values/compare.h"

namespace dslaunch::text::jinja {

Value Runtime::new_namespace() {
    auto made = make_object<Namespace>(&meter_, 64);
    namespaces_.push_back(made);
    return Value::of(ValueKind::kNamespace, std::move(made));
}

Value new_function(Meter* meter, std::string name, int depth,
                   std::function<Value(Runtime&, Arguments&)> run) {
    auto function = make_object<Function>(meter, 128);
    function->name = std::move(name);
    function->depth = deeper(depth);
    function->run = std::move(run);
    return Value::of(ValueKind::kFunction, std::move(function));
}

bool Given::is_set(size_t i) const {
    return bound_[i] != nullptr && !bound_[i]->is(ValueKind::kNone);
}

bool Given::is_on(size_t i) const {
    return bound_[i] != nullptr && is_true(*bound_[i]);
}

int64_t Given::integer(size_t i, int64_t fallback) const {
    if (bound_[i] == nullptr) return fallback;
    if (bound_[i]->is(ValueKind::kLargeInt))
        throw Fault(fmt::format("`{}` is given a whole number that does not fit in 64 bits", who_));
    if (!bound_[i]->is_integral())
        throw Fault(fmt::format("`{}` needs a whole number, not a value of type {}", who_,
                                type_name(*bound_[i])));
    return bound_[i]->integral();
}

const std::string& Given::text(size_t i) const {
    return required_text(who_, *bound_[i]);
}

Value call_native(Runtime& runtime, const Native& function, const Value& self,
                  const Arguments& arguments) {
    const std::string_view who = function.name;
    Given given(who, arguments);
    if (function.names[0] == "*") return function.run(runtime, self, given);
    const auto end = std::ranges::find(function.names, std::string_view());
    const auto count = static_cast<size_t>(end - function.names.begin());
    if (arguments.positional.size() > count)
        throw Fault(fmt::format("`{}` takes at most {} arguments, but {} are given", who, count,
                                arguments.positional.size()));
    for (size_t i = 0; i < arguments.positional.size(); ++i)
        given.bound_[i] = &arguments.positional[i];
    for (const auto& [name, value] : arguments.named) {
        const auto found = std::find(function.names.begin(), end, name);
        if (found == end || name.starts_with('_'))
            throw Fault(fmt::format("`{}` has no argument `{}`", who, name));
        const Value*& place = given.bound_[size_t(found - function.names.begin())];
        if (place != nullptr) throw Fault(fmt::format("`{}` is given `{}` twice", who, name));
        place = &value;
    }
    for (size_t i = 0; i < function.required; ++i)
        if (given.bound_[i] == nullptr)
            throw Fault(
                fmt::format("`{}` needs the argument `{}`", who,
                            function.names[i].substr(function.names[i].find_first_not_of('_'))));
    return function.run(runtime, self, given);
}

const Native* find_native(std::span<const Native> table, std::string_view name) {
    const auto found = std::ranges::find(table, name, &Native::name);
    return found == table.end() ? nullptr : &*found;
}

const std::string& required_text(std::string_view who, const Value& value) {
    if (!value.is(ValueKind::kText)) {
        const std::string name = value.undefined_name();
        if (!name.empty()) throw Fault(fmt::format("'{}' is undefined", name));
        throw Fault(
            fmt::format("`{}` needs a string, not a value of type {}", who, type_name(value)));
    }
    return value.text();
}

}  // namespace dslaunch::text::jinja
