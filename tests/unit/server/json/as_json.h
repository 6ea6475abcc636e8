// A value of JsonDocument as a value of another library, for comparisons.
#pragma once

#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/check.h"
#include "server/json/json_document.h"

namespace dslaunch::server {

// Returns VALUE as the other library's value. Checks that its numbers of elements are right, and
// that its fields are found.
inline nlohmann::json as_json(JsonView value) {
    switch (value.kind()) {
        case JsonKind::kNull:
            return nullptr;
        case JsonKind::kBool:
            return value.flag();
        case JsonKind::kInteger:
            return value.integer();
        case JsonKind::kReal:
            return value.real();
        case JsonKind::kText:
            return std::string(value.text());
        case JsonKind::kArray: {
            nlohmann::json array = nlohmann::json::array();
            for (const JsonView item : value.items()) array.push_back(as_json(item));
            DSL_CHECK(std::ssize(array) == value.elements(), "{} elements", value.elements());
            return array;
        }
        case JsonKind::kObject:
            break;
    }
    nlohmann::json object = nlohmann::json::object();
    value.for_each_field([&](std::string_view key, JsonView field) {
        DSL_CHECK(value.find(key), "the field {} is not found", key);
        object[std::string(key)] = as_json(field);
    });
    DSL_CHECK(std::ssize(object) == value.elements(), "{} fields", value.elements());
    return object;
}

}  // namespace dslaunch::server
