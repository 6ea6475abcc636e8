#include "text/chat_template/objects/methods.h"

#include "text/chat_template/objects/slices.h"
#include "text/chat_template/values/compare.h"

#include <algorithm>

namespace dslaunch::text::jinja {
namespace {

Value dict_get(Runtime& runtime, const Value& self, const Arguments& arguments) {
    const auto bound = bind("get()", arguments, {"_key", "_default"}, 1);
    const Value* value = find_key(runtime.meter(), self.dict(), *bound[0]);
    if (value != nullptr) return *value;
    return bound[1] == nullptr ? Value::none() : *bound[1];
}

template <View::What kWhat>
Value dict_view(Runtime& runtime, const Value& self, const Arguments& arguments) {
    static_cast<void>(bind("the view of a dict", arguments, {}, 0));
    return new_view(&runtime.meter(), self, kWhat);
}

// Nothing can change a list or a dict, so a copy may be the same one.
Value copy_of(Runtime& /*runtime*/, const Value& self, const Arguments& arguments) {
    static_cast<void>(bind("copy()", arguments, {}, 0));
    return self;
}

Value dict_from_keys(Runtime& runtime, const Value& /*self*/, const Arguments& arguments) {
    const auto bound = bind("fromkeys()", arguments, {"_keys", "_value"}, 1);
    std::vector<Entry> entries;
    for (const Value& key : all_of(runtime.meter(), *bound[0]))
        put_entry(runtime.meter(), entries, key, bound[1] == nullptr ? Value::none() : *bound[1]);
    return new_dict(&runtime.meter(), std::move(entries));
}

Value count_in_list(Runtime& runtime, const Value& self, const Arguments& arguments) {
    const auto bound = bind("count()", arguments, {"_value"}, 1);
    int64_t count = 0;
    for (const Value& item : all_of(runtime.meter(), self))
        count += are_equal(runtime.meter(), item, *bound[0]) ? 1 : 0;
    return Value::integer(count);
}

Value index_in_list(Runtime& runtime, const Value& self, const Arguments& arguments) {
    const auto bound = bind("index()", arguments, {"_value", "_start", "_stop"}, 1);
    const int64_t length = length_of(self).value_or(0);
    const auto place = [&](const Value* given, int64_t fallback) {
        int64_t at = whole_number("index()", given, fallback);
        if (at < 0) at += length;
        return std::clamp<int64_t>(at, 0, length);
    };
    const Values items = all_of(runtime.meter(), self);
    const int64_t stop = place(bound[2], length);
    for (int64_t i = place(bound[1], 0); i < stop; ++i)
        if (are_equal(runtime.meter(), items[size_t(i)], *bound[0])) return Value::integer(i);
    throw Fault("index() looks for a value that is not there");
}

constexpr Method kDictMethods[] = {
    {"copy", copy_of},
    {"fromkeys", dict_from_keys},
    {"get", dict_get},
    {"items", dict_view<View::What::kItems>},
    {"keys", dict_view<View::What::kKeys>},
    {"values", dict_view<View::What::kValues>},
};
constexpr Method kListMethods[] = {
    {"copy", copy_of},
    {"count", count_in_list},
    {"index", index_in_list},
};
constexpr Method kTupleMethods[] = {
    {"count", count_in_list},
    {"index", index_in_list},
};

constexpr std::string_view kHiddenOfList[] = {"append", "clear",  "extend",  "insert",
                                              "pop",    "remove", "reverse", "sort"};
constexpr std::string_view kHiddenOfDict[] = {"clear", "pop", "popitem", "setdefault", "update"};

const Method* named_method(std::span<const Method> methods, std::string_view name) {
    for (const Method& method : methods)
        if (method.name == name) return &method;
    return nullptr;
}

}  // namespace

const Method* find_method(const Value& self, std::string_view name) {
    switch (self.kind()) {
        case Kind::kText: {
            const Method* method = named_method(text_methods(), name);
            return method != nullptr ? method : named_method(text_class_methods(), name);
        }
        case Kind::kDict:
            return named_method(kDictMethods, name);
        case Kind::kList:
            return named_method(kListMethods, name);
        case Kind::kTuple:
        case Kind::kRange:
            return named_method(kTupleMethods, name);
        default:
            return nullptr;
    }
}

bool is_hidden_method(const Value& self, std::string_view name) {
    if (self.is(Kind::kList))
        return std::count(std::begin(kHiddenOfList), std::end(kHiddenOfList), name) > 0;
    if (self.is(Kind::kDict))
        return std::count(std::begin(kHiddenOfDict), std::end(kHiddenOfDict), name) > 0;
    return false;
}

}  // namespace dslaunch::text::jinja
