// The metadata of a GGUF file: values by key. GgufValue is a view of a checked value in a file;
// GgufMetadata finds values and converts them; GgufValues collects values for a new file. Data
// path: gguf_file.h -> [here] -> storage/gguf_model. Const functions: any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace dslaunch::storage {

// The types of values, by their numbers in the file.
enum class GgufType : uint32_t {
    kU8 = 0,
    kI8 = 1,
    kU16 = 2,
    kI16 = 3,
    kU32 = 4,
    kI32 = 5,
    kF32 = 6,
    kBool = 7,
    kText = 8,
    kList = 9,
    kU64 = 10,
    kI64 = 11,
    kF64 = 12,
};

// Returns the bytes of a number of TYPE; 0 for texts and lists.
[[nodiscard]] int64_t gguf_type_bytes(GgufType type);

// A value in a mapped file. A text's bytes are its characters; a list's bytes are its elements as
// they are in the file.
struct GgufValue {
    GgufType type = GgufType::kU8;
    GgufType element = GgufType::kU8;  // type of a list's elements
    int64_t count = 1;                 // number of a list's elements
    std::span<const std::byte> bytes;
};

// Values by key. Each function throws Error{kInput} that names the file and the key if the value
// has another type or does not fit.
class GgufMetadata {
  public:
    GgufMetadata() = default;
    explicit GgufMetadata(std::string path) : path_(std::move(path)) {}

    // Returns false if KEY is there already.
    [[nodiscard]] bool add(std::string key, GgufValue value);

    [[nodiscard]] bool has(std::string_view key) const { return values_.contains(key); }
    // Return the value at KEY, which must exist.
    [[nodiscard]] std::string text(std::string_view key) const;
    [[nodiscard]] int64_t integer(std::string_view key) const;
    [[nodiscard]] double number(std::string_view key) const;
    // Return OTHERWISE if there is no value at KEY.
    [[nodiscard]] std::string text_or(std::string_view key, std::string otherwise) const;
    [[nodiscard]] int64_t integer_or(std::string_view key, int64_t otherwise) const;
    [[nodiscard]] double number_or(std::string_view key, double otherwise) const;
    [[nodiscard]] bool flag_or(std::string_view key, bool otherwise) const;
    // Return the elements of a list. A single number counts as a list of one. The texts are views
    // of the file.
    [[nodiscard]] std::vector<std::string_view> texts(std::string_view key) const;
    [[nodiscard]] std::vector<int64_t> integers(std::string_view key) const;
    [[nodiscard]] std::vector<double> numbers(std::string_view key) const;

    [[nodiscard]] const std::map<std::string, GgufValue, std::less<>>& values() const {
        return values_;
    }
    [[nodiscard]] const std::string& path() const { return path_; }
    // Throws Error{kInput} with the file, KEY and WHY.
    [[noreturn]] void refuse(std::string_view key, std::string_view why) const;

  private:
    [[nodiscard]] const GgufValue& at(std::string_view key) const;

    std::string path_;
    std::map<std::string, GgufValue, std::less<>> values_;
};

// The values for a new file, in the order of the calls.
class GgufValues {
  public:
    void add(std::string_view key, std::string_view text);
    void add(std::string_view key, const char* text) { add(key, std::string_view(text)); }
    void add(std::string_view key, bool flag);
    void add(std::string_view key, float number);
    // REQUIRES: NUMBER is from 0 to 2^32 - 1.
    void add(std::string_view key, int64_t number);
    void add(std::string_view key, const std::vector<std::string>& texts);
    void add(std::string_view key, const std::vector<float>& numbers);
    void add(std::string_view key, const std::vector<int32_t>& numbers);
    void add(std::string_view key, const std::vector<bool>& flags);

    [[nodiscard]] int64_t count() const { return count_; }
    // Returns the values as a file has them.
    [[nodiscard]] const std::string& bytes() const { return bytes_; }

  private:
    void begin(std::string_view key, GgufType type);
    void begin_list(std::string_view key, GgufType element, size_t count);

    std::string bytes_;
    int64_t count_ = 0;
};

}  // namespace dslaunch::storage
