#include "worker/text/chat_values.h"

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"

namespace dslaunch::worker {

using server::JsonKind;
using server::JsonView;
using text::jinja::Value;

namespace {

Value large_integer(std::string_view digits) {
    try {
        return text::jinja::new_integer(nullptr, digits);
    } catch (const text::jinja::Fault& fault) {
        fail(ExitCode::kInput, "a value for a template: {}", fault.what());
    }
}

Value list_of(JsonView array) {
    text::jinja::Values items;
    items.reserve(static_cast<size_t>(array.elements()));
    for (const JsonView item : array.items()) items.push_back(template_value(item));
    return text::jinja::new_list(nullptr, std::move(items));
}

Value dict_of(JsonView object) {
    std::vector<text::jinja::Entry> entries;
    entries.reserve(static_cast<size_t>(object.elements()));
    bool is_key = true;
    for (const JsonView field : object.fields()) {
        if (is_key) {
            entries.emplace_back(template_value(field), Value());
        } else {
            entries.back().second = template_value(field);
        }
        is_key = !is_key;
    }
    return text::jinja::new_dict(nullptr, std::move(entries));
}

}  // namespace

// A document is no deeper than its reader allows.
Value template_value(JsonView value) {
    switch (value.kind()) {
        case JsonKind::kNull:
            return Value::none();
        case JsonKind::kBool:
            return Value::boolean(value.flag());
        case JsonKind::kInteger:
            return Value::integer(value.integer());
        case JsonKind::kReal:
            return value.is_large_integer() ? large_integer(value.digits())
                                            : Value::real(value.real());
        case JsonKind::kText:
            return text::jinja::new_text(nullptr, std::string(value.text()));
        case JsonKind::kArray:
            return list_of(value);
        case JsonKind::kObject:
            return dict_of(value);
    }
    return Value::none();
}

}  // namespace dslaunch::worker
