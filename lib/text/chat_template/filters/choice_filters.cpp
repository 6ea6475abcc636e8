#include "text/chat_template/filters/filters.h"
#include "text/chat_template/objects/attributes.h"
#include "text/chat_template/values/compare.h"
#include "text/chat_template/values/letters.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <utility>

// The filters that give their elements one by one, only as far as somebody asks for them.
namespace dslaunch::text::jinja {
namespace {

int depth_of(const Value& input, const Arguments& arguments) {
    int depth = input.depth();
    for (const Value& value : arguments.positional) depth = std::max(depth, value.depth());
    for (const auto& [name, value] : arguments.named) depth = std::max(depth, value.depth());
    return depth;
}

// An iterator over INPUT that gives what CHANGE makes of an element, or goes on when that is false.
template <typename Change>
Value lazily(Runtime& runtime, const Value& input, const Arguments& arguments,
             const Change& change) {
    const int depth = depth_of(input, arguments);
    if (!is_true(input))
        return new_iterator(&runtime.meter(), depth, [](Value& /*item*/) { return false; });
    auto cursor = std::make_shared<Cursor>(runtime.meter(), input);
    return new_iterator(&runtime.meter(), depth, [&runtime, cursor, change](Value& item) {
        while (cursor->next(item)) {
            runtime.meter().step();
            if (change(item)) return true;
        }
        return false;
    });
}

Value map_filter(Runtime& runtime, const Value& input, const Arguments& arguments) {
    if (!arguments.positional.empty()) {
        const std::string name = required_text("map", arguments.positional[0]);
        Arguments rest = arguments;
        rest.positional.erase(rest.positional.begin());
        return lazily(runtime, input, arguments, [&runtime, name, rest](Value& item) {
            item = runtime.filter(name, item, rest);
            return true;
        });
    }
    const auto bound = bind("map", arguments, {"attribute", "default"}, 1);
    const Values path = path_of(runtime, *bound[0]);
    const bool has_default = bound[1] != nullptr && !bound[1]->is(Kind::kNone);
    const Value fallback = has_default ? *bound[1] : Value();
    return lazily(runtime, input, arguments, [&runtime, path, has_default, fallback](Value& item) {
        item = follow_path(runtime, item, path, has_default ? &fallback : nullptr);
        return true;
    });
}

// WANTED: the truth of the elements that are kept. OF_ATTRIBUTE: the first argument names what is
// tested of each.
Value chosen(Runtime& runtime, const Value& input, const Arguments& arguments, bool wanted,
             bool of_attribute) {
    const size_t name_at = of_attribute ? 1 : 0;
    if (arguments.positional.size() < name_at) throw Fault("a filter needs an attribute's name");
    const Values path = of_attribute ? path_of(runtime, arguments.positional[0]) : Values{};
    const bool has_test = arguments.positional.size() > name_at;
    const std::string name = has_test ? required_text("select", arguments.positional[name_at]) : "";
    Arguments rest;
    if (has_test) {
        rest.named = arguments.named;
        rest.positional.assign(arguments.positional.begin() + long(name_at) + 1,
                               arguments.positional.end());
    }
    return lazily(runtime, input, arguments, [=, &runtime](Value& item) {
        const Value tested = follow_path(runtime, item, path);
        return (has_test ? runtime.test(name, tested, rest) : is_true(tested)) == wanted;
    });
}

template <bool kWanted, bool kOfAttribute>
Value choice_filter(Runtime& runtime, const Value& input, const Arguments& arguments) {
    return chosen(runtime, input, arguments, kWanted, kOfAttribute);
}

Value unique_filter(Runtime& runtime, const Value& input, const Arguments& arguments) {
    const auto bound = bind("unique", arguments, {"case_sensitive", "attribute"}, 0);
    const bool with_case = bound[0] != nullptr && is_true(*bound[0]);
    const Values path = bound[1] == nullptr ? Values{} : path_of(runtime, *bound[1]);
    auto cursor = std::make_shared<Cursor>(runtime.meter(), input);
    auto seen = std::make_shared<Values>();
    const auto is_new = [&runtime, with_case, path, seen](const Value& item) {
        Value key = follow_path(runtime, item, path);
        if (!with_case && key.is(Kind::kText))
            key = new_text(&runtime.meter(), lower_text(key.text()));
        require_key(key);
        for (const Value& other : *seen)
            if (are_equal(runtime.meter(), other, key)) return false;
        seen->push_back(std::move(key));
        return true;
    };
    return new_iterator(&runtime.meter(), depth_of(input, arguments),
                        [cursor, is_new](Value& item) {
                            while (cursor->next(item))
                                if (is_new(item)) return true;
                            return false;
                        });
}

Value items_filter(Runtime& runtime, const Value& input, const Arguments& arguments) {
    static_cast<void>(bind("items", arguments, {}, 0));
    if (!input.is(Kind::kUndefined) && !input.is(Kind::kDict)) {
        // As all else that is given one by one, it fails when it is asked for.
        const std::string type = type_name(input);
        return new_iterator(&runtime.meter(), 0, [type](Value& /*item*/) -> bool {
            throw Fault(fmt::format("items needs a dict and has a value of type {}", type));
        });
    }
    const Value source =
        input.is(Kind::kDict) ? new_view(&runtime.meter(), input, View::What::kItems) : input;
    auto cursor = std::make_shared<Cursor>(runtime.meter(), source);
    return new_iterator(&runtime.meter(), source.depth(),
                        [cursor](Value& item) { return cursor->next(item); });
}

constexpr Filter kChoiceFilters[] = {
    {"items", items_filter},
    {"map", map_filter},
    {"reject", choice_filter<false, false>},
    {"rejectattr", choice_filter<false, true>},
    {"select", choice_filter<true, false>},
    {"selectattr", choice_filter<true, true>},
    {"unique", unique_filter},
};

}  // namespace

std::span<const Filter> choice_filters() {
    return kChoiceFilters;
}

}  // namespace dslaunch::text::jinja
