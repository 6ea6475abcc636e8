#include "storage/huggingface/config_values.h"

#include <fmt/core.h>

#include <cmath>

namespace dslaunch::storage {

int64_t size_at(const JsonPlace& config, const char* key, int64_t most) {
    const JsonPlace place = config.at(key);
    const int64_t value = place.integer();
    if (value < 1 || value > most)
        place.refuse(fmt::format("must be from 1 to {}, not {}", most, value));
    return value;
}

int64_t size_or(const JsonPlace& config, const char* key, int64_t otherwise) {
    return config.has(key) ? size_at(config, key) : otherwise;
}

double number_or(const JsonPlace& config, const char* key, double otherwise) {
    if (!config.has(key)) return otherwise;
    const double value = config.at(key).number();
    if (!std::isfinite(value)) config.at(key).refuse("must be finite");
    return value;
}

bool flag_or(const JsonPlace& config, const char* key, bool otherwise) {
    return config.has(key) ? config.at(key).boolean() : otherwise;
}

double positive_or(const JsonPlace& config, const char* key, double otherwise) {
    const double value = number_or(config, key, otherwise);
    if (!(value > 0)) config.at(key).refuse("must be above 0");
    return value;
}

double probability_or(const JsonPlace& config, const char* key, double otherwise) {
    const double value = number_or(config, key, otherwise);
    if (!(value >= 0 && value < 1)) config.at(key).refuse("must be at least 0 and below 1");
    return value;
}

std::optional<JsonPlace> object_at(const JsonPlace& config, const char* key) {
    if (!config.has(key)) return std::nullopt;
    return config.at(key);
}

}  // namespace dslaunch::storage
