#include "config/read/tree_builder.h"

#include <fmt/format.h>

#include <utility>

#include "base/text.h"

namespace dslaunch::config {

using Kind = Value::Kind;

void TreeBuilder::open(Kind kind, TextPlace place) {
    if (awaits_key()) stop(place, "a key must be a plain name");
    if (open_.size() >= size_t(kConfigDepthMax)) {
        stop(place, fmt::format("nested deeper than {} levels", kConfigDepthMax));
    }
    Open level;
    level.value.kind = kind;
    level.value.origin = origin(place);
    open_.push_back(std::move(level));
}

void TreeBuilder::close() {
    Value value = std::move(open_.back().value);
    open_.pop_back();
    put(std::move(value));
}

void TreeBuilder::add(Value value, TextPlace place) {
    if (awaits_key()) stop(place, "a key must be a plain name");
    value.origin = origin(place);
    put(std::move(value));
}

void TreeBuilder::take_key(const std::string& key, TextPlace place) {
    Open& level = open_.back();
    if (level.value.keys.size() >= kConfigSectionKeysMax ||
        problems_.size() >= kConfigSectionKeysMax) {
        stop(place, fmt::format("more than {0} keys in one section, or {0} problems in the file",
                                kConfigSectionKeysMax));
    }
    level.is_duplicate = level.value.find(key) != nullptr;
    level.key = key;
    level.has_key = true;
    if (level.is_duplicate) {
        const Origin& first = level.value.find(key)->origin;
        problems_.push_back({path(), "duplicate key, first given at " + first, origin(place)});
    }
}

bool TreeBuilder::awaits_key() const {
    return !open_.empty() && open_.back().value.is(Kind::kObject) && !open_.back().has_key;
}

void TreeBuilder::stop(TextPlace place, std::string message) const {
    throw StopReading{Problem{path(), std::move(message), origin(place)}};
}

Origin TreeBuilder::origin(TextPlace place) const {
    if (!fixed_origin_.empty()) return fixed_origin_;
    return fmt::format("{}:{}:{}", name_, place.line, place.column);
}

std::string TreeBuilder::path() const {
    std::vector<std::string> parts;
    for (const Open& level : open_) {
        if (level.has_key) parts.push_back(level.key);
    }
    return join(parts, ".");
}

void TreeBuilder::put(Value value) {
    if (open_.empty()) {
        root_ = std::move(value);
        return;
    }
    Open& level = open_.back();
    if (level.value.is(Kind::kObject)) {
        level.has_key = false;
        if (level.is_duplicate) return;
        level.value.keys.push_back(std::move(level.key));
    }
    level.value.items.push_back(std::move(value));
}

}  // namespace dslaunch::config
