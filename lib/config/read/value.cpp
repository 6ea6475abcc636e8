#include "config/read/value.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/text.h"
#include "base/text/json.h"

namespace dslaunch::config {
namespace {

constexpr size_t kShownTextMax = 60;

std::string number_text(double number) {
    if (std::isnan(number)) return ".nan";
    if (std::isinf(number)) return number > 0 ? ".inf" : "-.inf";
    return fmt::format("{}", number);
}

std::string line_break(int indent) {
    return indent < 0 ? "" : "\n" + std::string(size_t(indent), ' ');
}

}  // namespace

const Value* Value::find(std::string_view key) const {
    auto found = std::find(keys.begin(), keys.end(), key);
    return found == keys.end() ? nullptr : &items[size_t(found - keys.begin())];
}

std::string Problem::text() const {
    std::string result = origin.empty() ? "" : origin + ": ";
    if (!path.empty()) result += path + ": ";
    return printable(result + message);
}

bool same_value(const Value& a, const Value& b) {
    using Kind = Value::Kind;
    bool a_number = a.is(Kind::kInt) || a.is(Kind::kFloat);
    bool b_number = b.is(Kind::kInt) || b.is(Kind::kFloat);
    if (a_number && b_number) {
        if (a.is(Kind::kInt) && b.is(Kind::kInt)) return a.integer == b.integer;
        return a.as_double() == b.as_double();
    }
    if (a.kind != b.kind || a.items.size() != b.items.size()) return false;
    switch (a.kind) {
        case Kind::kBool:
            return a.boolean == b.boolean;
        case Kind::kString:
            return a.text == b.text;
        case Kind::kList:
            return std::equal(a.items.begin(), a.items.end(), b.items.begin(), same_value);
        case Kind::kObject:
            for (size_t i = 0; i < a.keys.size(); ++i) {
                const Value* other = b.find(a.keys[i]);
                if (other == nullptr || !same_value(a.items[i], *other)) return false;
            }
            return true;
        default:
            return true;
    }
}

const Value* find_path(const Value& root, std::string_view path) {
    const Value* at = &root;
    for (const std::string& part : split(path, '.')) {
        if (!at->is(Value::Kind::kObject)) return nullptr;
        at = at->find(part);
        if (at == nullptr) return nullptr;
    }
    return at;
}

bool set_path(Value& root, std::string_view path, Value value) {
    Value* at = &root;
    for (const std::string& part : split(path, '.')) {
        if (at->is(Value::Kind::kNull)) at->kind = Value::Kind::kObject;
        if (!at->is(Value::Kind::kObject)) return false;
        auto found = std::find(at->keys.begin(), at->keys.end(), part);
        if (found == at->keys.end()) {
            at->keys.push_back(part);
            Value child;
            child.origin = value.origin;
            at->items.push_back(std::move(child));
            at = &at->items.back();
        } else {
            at = &at->items[size_t(found - at->keys.begin())];
        }
    }
    *at = std::move(value);
    return true;
}

std::string to_json(const Value& value, int indent) {
    using Kind = Value::Kind;
    switch (value.kind) {
        case Kind::kNull:
            return "null";
        case Kind::kBool:
            return value.boolean ? "true" : "false";
        case Kind::kInt:
            return std::to_string(value.integer);
        case Kind::kFloat:
            return std::isfinite(value.number) ? number_text(value.number) : "null";
        case Kind::kString:
            return json_quote(value.text);
        default:
            break;
    }
    bool object = value.is(Kind::kObject);
    if (value.items.empty()) return object ? "{}" : "[]";
    int inner = indent < 0 || !object ? -1 : indent + 2;
    std::string text = object ? "{" : "[";
    for (size_t i = 0; i < value.items.size(); ++i) {
        if (i > 0) text += inner < 0 ? ", " : ",";
        text += line_break(inner);
        if (object) text += json_quote(value.keys[i]) + ": ";
        text += to_json(value.items[i], inner);
    }
    return text + (object ? line_break(inner < 0 ? -1 : indent) + "}" : "]");
}

std::string describe(const Value& value) {
    using Kind = Value::Kind;
    switch (value.kind) {
        case Kind::kFloat:
            return number_text(value.number);
        case Kind::kString: {
            std::string shown = value.text.substr(0, kShownTextMax);
            return "the string " + json_quote(shown) + (shown == value.text ? "" : "…");
        }
        case Kind::kList:
            return "a list";
        case Kind::kObject:
            return "an object";
        default:
            return to_json(value);
    }
}

Value make_value(bool flag) {
    return {.kind = Value::Kind::kBool, .boolean = flag};
}

Value make_value(int64_t number) {
    return {.kind = Value::Kind::kInt, .integer = number};
}

Value make_value(double number) {
    return {.kind = Value::Kind::kFloat, .number = number};
}

Value make_value(std::string text) {
    return {.kind = Value::Kind::kString, .text = std::move(text)};
}

}  // namespace dslaunch::config
