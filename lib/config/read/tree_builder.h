// Builds a config's tree from the parts that a reader of JSON or YAML finds in the text, one after
// the other: places, duplicate keys and limits are the same for both. And the reader of JSON. No
// threads.
#pragma once

#include "config/read/value.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace dslaunch::config {

// Limits of a text: beyond them it is refused, not truncated.
constexpr int kConfigDepthMax = 32;
constexpr size_t kConfigSectionKeysMax = 1024;

// Counted from 1; the column in bytes.
struct Place {
    int64_t line = 1;
    int64_t column = 1;
};

// Ends the reading at once: what was read so far is not used.
struct StopReading {
    Problem problem;
};

class TreeBuilder {
  public:
    // Problems that do not end the reading, as duplicate keys, go into PROBLEMS, which must outlive
    // the builder. NAME: the text's. FIXED_ORIGIN: the origin of every value; empty: its place in
    // the text.
    TreeBuilder(std::vector<Problem>& problems, std::string name, Origin fixed_origin)
        : problems_(problems), name_(std::move(name)), fixed_origin_(std::move(fixed_origin)) {}

    // Begins an object or a list; everything until its close() is in it. All three throw
    // StopReading for a limit, or if a key is due and there is no plain name.
    void open(Value::Kind kind, Place place);
    void add(Value value, Place place);
    void take_key(const std::string& key, Place place);
    // REQUIRES: something is open.
    void close();

    // Returns true if a key comes next, not a value.
    [[nodiscard]] bool awaits_key() const;
    // Throws StopReading that names the key whose value was awaited.
    [[noreturn]] void stop(Place place, std::string message) const;
    [[nodiscard]] Origin origin(Place place) const;
    // Returns the whole tree; nothing: there was no value.
    [[nodiscard]] const std::optional<Value>& root() const { return root_; }

  private:
    struct Open {
        Value value;
        std::string key;  // waits for its value
        bool has_key = false;
        bool duplicate = false;
    };

    [[nodiscard]] std::string path() const;
    void put(Value value);

    std::vector<Problem>& problems_;
    std::string name_;
    Origin fixed_origin_;
    std::vector<Open> open_;
    std::optional<Value> root_;
};

// hjson.cpp: JSON as DeepSpeed's reader, Python's `hjson`, takes it: comments (`#`, `//`, `/* */`),
// no comma at a line's end or one too many, keys and text without quotes, '…', '''…''' over
// several lines, no braces around all.
// Gives TREE the contents of TEXT; nothing when TEXT has only comments. Throws StopReading with the
// place: a mistake, also one that HJSON takes as text (quoteless.h), or a limit.
void read_hjson(std::string_view text, TreeBuilder& tree);

// Returns the number of the four hexadecimal digits of TEXT at AT.
[[nodiscard]] std::optional<uint32_t> hex4(std::string_view text, size_t at);

}  // namespace dslaunch::config
