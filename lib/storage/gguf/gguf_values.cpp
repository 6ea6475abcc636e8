#include "storage/gguf/gguf_values.h"

#include <cmath>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "base/text.h"
#include "base/text_bytes.h"

namespace dslaunch::storage {
namespace {

template <typename T>
T number_at(const std::byte* from) {
    T number{};
    std::memcpy(&number, from, sizeof number);
    return number;
}

template <typename T>
void append(std::string& bytes, T number) {
    bytes.append(reinterpret_cast<const char*>(&number), sizeof number);
}

void append_text(std::string& bytes, std::string_view text) {
    append(bytes, static_cast<uint64_t>(text.size()));
    bytes += text;
}

// Returns the integer of TYPE at FROM; nothing if TYPE is no integer or the number does not fit.
std::optional<int64_t> integer_at(GgufType type, const std::byte* from) {
    switch (type) {
        case GgufType::kU8:
            return number_at<uint8_t>(from);
        case GgufType::kI8:
            return number_at<int8_t>(from);
        case GgufType::kU16:
            return number_at<uint16_t>(from);
        case GgufType::kI16:
            return number_at<int16_t>(from);
        case GgufType::kU32:
            return number_at<uint32_t>(from);
        case GgufType::kI32:
            return number_at<int32_t>(from);
        case GgufType::kI64:
            return number_at<int64_t>(from);
        case GgufType::kU64: {
            const auto number = number_at<uint64_t>(from);
            if (number > INT64_MAX) return std::nullopt;
            return static_cast<int64_t>(number);
        }
        case GgufType::kBool:
            return number_at<uint8_t>(from) != 0;
        default:
            return std::nullopt;
    }
}

std::optional<double> double_at(GgufType type, const std::byte* from) {
    if (type == GgufType::kF32) return number_at<float>(from);
    if (type == GgufType::kF64) return number_at<double>(from);
    if (const auto integer = integer_at(type, from)) return static_cast<double>(*integer);
    return std::nullopt;
}

}  // namespace

int64_t gguf_type_bytes(GgufType type) {
    switch (type) {
        case GgufType::kU8:
        case GgufType::kI8:
        case GgufType::kBool:
            return 1;
        case GgufType::kU16:
        case GgufType::kI16:
            return 2;
        case GgufType::kU32:
        case GgufType::kI32:
        case GgufType::kF32:
            return 4;
        case GgufType::kU64:
        case GgufType::kI64:
        case GgufType::kF64:
            return 8;
        default:
            return 0;
    }
}

bool GgufMetadata::add(std::string key, GgufValue value) {
    return values_.emplace(std::move(key), value).second;
}

void GgufMetadata::refuse(std::string_view key, std::string_view why) const {
    fail(ExitCode::kInput, "{}: the value `{}` {}", printable(path_), printable(key), why);
}

const GgufValue& GgufMetadata::at(std::string_view key) const {
    const auto found = values_.find(key);
    if (found == values_.end()) refuse(key, "is missing: the file is incomplete, or no model");
    return found->second;
}

std::string GgufMetadata::text(std::string_view key) const {
    const GgufValue& value = at(key);
    if (value.type != GgufType::kText) refuse(key, "is not a text");
    return std::string(text_in(value.bytes));
}

int64_t GgufMetadata::integer(std::string_view key) const {
    const GgufValue& value = at(key);
    // Some files have a list with the value of each layer.
    if (value.type == GgufType::kList) {
        const std::vector<int64_t> all = integers(key);
        for (const int64_t one : all)
            if (one != all.front()) refuse(key, "differs between layers, which is not supported");
        if (!all.empty()) return all.front();
    } else if (const auto number = integer_at(value.type, value.bytes.data())) {
        return *number;
    }
    refuse(key, "is not an integer, or does not fit");
}

double GgufMetadata::number(std::string_view key) const {
    const GgufValue& value = at(key);
    if (value.type == GgufType::kList || value.type == GgufType::kText)
        refuse(key, "is not a number");
    const auto number = double_at(value.type, value.bytes.data());
    if (!number || !std::isfinite(*number)) refuse(key, "is not a finite number");
    return *number;
}

std::string GgufMetadata::text_or(std::string_view key, std::string otherwise) const {
    return has(key) ? text(key) : std::move(otherwise);
}

int64_t GgufMetadata::integer_or(std::string_view key, int64_t otherwise) const {
    return has(key) ? integer(key) : otherwise;
}

double GgufMetadata::number_or(std::string_view key, double otherwise) const {
    return has(key) ? number(key) : otherwise;
}

bool GgufMetadata::flag_or(std::string_view key, bool otherwise) const {
    if (!has(key)) return otherwise;
    if (at(key).type != GgufType::kBool) refuse(key, "is not true or false");
    return integer(key) != 0;
}

std::vector<std::string_view> GgufMetadata::texts(std::string_view key) const {
    const GgufValue& value = at(key);
    if (value.type != GgufType::kList || value.element != GgufType::kText)
        refuse(key, "is not a list of texts");
    std::vector<std::string_view> all;
    all.reserve(static_cast<size_t>(value.count));
    const std::string_view bytes = text_in(value.bytes);
    size_t at = 0;
    for (int64_t i = 0; i < value.count; ++i) {
        const auto length = static_cast<size_t>(number_at<uint64_t>(value.bytes.data() + at));
        all.push_back(bytes.substr(at + sizeof(uint64_t), length));
        at += sizeof(uint64_t) + length;
    }
    return all;
}

std::vector<int64_t> GgufMetadata::integers(std::string_view key) const {
    const GgufValue& value = at(key);
    if (value.type != GgufType::kList) return {integer(key)};
    std::vector<int64_t> all;
    const int64_t bytes = gguf_type_bytes(value.element);
    for (int64_t i = 0; i < value.count; ++i) {
        const auto number =
            bytes == 0 ? std::nullopt : integer_at(value.element, value.bytes.data() + i * bytes);
        if (!number) refuse(key, "is not a list of integers");
        all.push_back(*number);
    }
    return all;
}

std::vector<double> GgufMetadata::numbers(std::string_view key) const {
    const GgufValue& value = at(key);
    if (value.type != GgufType::kList) return {number(key)};
    std::vector<double> all;
    const int64_t bytes = gguf_type_bytes(value.element);
    for (int64_t i = 0; i < value.count; ++i) {
        const auto number =
            bytes == 0 ? std::nullopt : double_at(value.element, value.bytes.data() + i * bytes);
        if (!number) refuse(key, "is not a list of numbers");
        all.push_back(*number);
    }
    return all;
}

void GgufValues::begin(std::string_view key, GgufType type) {
    append_text(bytes_, key);
    append(bytes_, static_cast<uint32_t>(type));
    ++count_;
}

void GgufValues::begin_list(std::string_view key, GgufType element, size_t count) {
    begin(key, GgufType::kList);
    append(bytes_, static_cast<uint32_t>(element));
    append(bytes_, static_cast<uint64_t>(count));
}

void GgufValues::add(std::string_view key, std::string_view text) {
    begin(key, GgufType::kText);
    append_text(bytes_, text);
}

void GgufValues::add(std::string_view key, bool flag) {
    begin(key, GgufType::kBool);
    append(bytes_, static_cast<uint8_t>(flag));
}

void GgufValues::add(std::string_view key, float number) {
    begin(key, GgufType::kF32);
    append(bytes_, number);
}

void GgufValues::add(std::string_view key, int64_t number) {
    DSL_CHECK(number >= 0 && number <= UINT32_MAX, "{} = {}", key, number);
    begin(key, GgufType::kU32);
    append(bytes_, static_cast<uint32_t>(number));
}

void GgufValues::add(std::string_view key, const std::vector<std::string>& texts) {
    begin_list(key, GgufType::kText, texts.size());
    for (const std::string& text : texts) append_text(bytes_, text);
}

void GgufValues::add(std::string_view key, const std::vector<float>& numbers) {
    begin_list(key, GgufType::kF32, numbers.size());
    for (const float number : numbers) append(bytes_, number);
}

void GgufValues::add(std::string_view key, const std::vector<int32_t>& numbers) {
    begin_list(key, GgufType::kI32, numbers.size());
    for (const int32_t number : numbers) append(bytes_, number);
}

void GgufValues::add(std::string_view key, const std::vector<bool>& flags) {
    begin_list(key, GgufType::kBool, flags.size());
    for (const bool flag : flags) append(bytes_, static_cast<uint8_t>(flag));
}

}  // namespace dslaunch::storage
