// A builder that makes a config's tree. A reader of JSON or YAML passes it the parts of the text
// one after the other. Places, duplicate keys and limits are therefore handled alike for both
// formats. The reader of JSON is declared here too. No threads.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "config/read/value.h"

namespace dslaunch::config {

// Limits of a text: if it exceeds them, it is refused, not truncated.
constexpr int kConfigDepthMax = 32;
constexpr size_t kConfigSectionKeysMax = 1024;

// A place in a text. Lines and columns are counted from 1, columns in bytes.
struct TextPlace {
    int64_t line = 1;
    int64_t column = 1;
};

// An exception that stops reading at once. The part that was read so far is not used.
struct StopReading {
    Problem problem;
};

// The builder of one tree. It takes the parts of one text in their order. One thread.
class TreeBuilder {
  public:
    // Problems that do not stop reading, such as duplicate keys, are added to PROBLEMS, which must
    // outlive the builder. NAME: the name of the text. FIXED_ORIGIN: the origin of every value; if
    // it is empty, the origin of a value is its place in the text.
    TreeBuilder(std::vector<Problem>& problems, std::string name, Origin fixed_origin)
        : problems_(problems), name_(std::move(name)), fixed_origin_(std::move(fixed_origin)) {}

    // Begins an object or a list, which contains everything up to its close(). open(), add() and
    // take_key() throw StopReading if a limit is exceeded, or if a key is expected and something
    // else comes.
    void open(Value::Kind kind, TextPlace place);
    void add(Value value, TextPlace place);
    void take_key(const std::string& key, TextPlace place);
    // REQUIRES: an object or list is open.
    void close();

    // Returns true if a key is expected next, not a value.
    [[nodiscard]] bool awaits_key() const;
    // Throws StopReading that names the key whose value was expected.
    [[noreturn]] void stop(TextPlace place, std::string message) const;
    // Returns the origin of a value at PLACE.
    [[nodiscard]] Origin origin(TextPlace place) const;
    // Returns the whole tree; nothing if there was no value.
    [[nodiscard]] const std::optional<Value>& root() const { return root_; }

  private:
    struct Open {
        Value value;
        std::string key;  // the key whose value comes next
        bool has_key = false;
        bool is_duplicate = false;
    };

    [[nodiscard]] std::string path() const;
    void put(Value value);

    std::vector<Problem>& problems_;
    std::string name_;
    Origin fixed_origin_;
    std::vector<Open> open_;
    std::optional<Value> root_;
};

// Reads HJSON in the same way as Python's `hjson`, which DeepSpeed uses. HJSON is JSON that may
// have comments (`#`, `//`, `/* */`), no comma at the end of a line, one comma too many, keys and
// text without quotes, text in single quotes, text over several lines in triple quotes ('''), and
// no outer braces. Adds the contents of TEXT to TREE; adds nothing if TEXT has only comments.
// Throws StopReading with the place if TEXT exceeds a limit or has a mistake. Also refuses some
// valid text that is probably a mistake (quoteless.h). Defined in hjson.cpp.
void read_hjson(std::string_view text, TreeBuilder& tree);

// Returns the number that the four hexadecimal digits at index AT of TEXT mean; nothing if fewer
// than four digits are there.
[[nodiscard]] std::optional<uint32_t> hex4(std::string_view text, size_t at);

}  // namespace dslaunch::config
