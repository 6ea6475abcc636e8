// Writes a value of a table as JSON. Pure.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>

namespace arrow {
class Array;
}

namespace dslaunch::storage {

// Thrown with the reason why a value cannot be written as JSON.
class NoJson : public std::runtime_error {
  public:
    explicit NoJson(const std::string& reason) : std::runtime_error(reason) {}
};

// Returns true if ARRAY has no value at INDEX.
[[nodiscard]] bool is_null_at(const arrow::Array& array, int64_t index);

// Appends TEXT in double quotes. Bytes that are not UTF-8 are kept, so that the reader of the JSON
// notices them.
void append_quoted(std::string& out, std::string_view text);

// Appends ARRAY's value at INDEX. Throws NoJson.
void append_json(std::string& out, const arrow::Array& array, int64_t index);

}  // namespace dslaunch::storage
