// The one table of config keys, DeepSpeed's documented ones and "dslaunch": keys.tsv. Everything
// that knows keys reads it: the checker, the defaults, `config keys`, docs/config-keys.md. No
// threads.
#pragma once

#include "config/read/value.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace dslaunch::config {

// In the order of the names that the table has for them.
enum class KeyType : uint8_t {
    kBool,
    kInt,
    kFloat,
    kFloats,  // a number, or a list of two
    kString,
    kStrings,  // one string, or a list of them
    kList,
    kObject,
    kFree  // not looked into
};

enum class KeyStatus : uint8_t {
    kSupported,
    kWithoutEffect,  // accepted, checked, has no meaning here: note says why
    kNotYet,         // refused when it asks for something: note names what is missing or what to
                     // use instead
};

// A row of the table.
struct KeySpec {
    std::string path;
    KeyType type = KeyType::kFree;
    std::string fallback;  // the default as YAML text
    std::string allowed;
    KeyStatus status = KeyStatus::kSupported;
    std::string doc;
    std::string only_for;
    std::string note;
    std::string same_as;  // the key that PATH is another name of; empty: none
};

// Every key, sections before what is in them.
[[nodiscard]] const std::vector<KeySpec>& schema();

// The entry for PATH (a concrete path, "*" and "[]" matched), nullptr when there is none.
[[nodiscard]] const KeySpec* find_key(std::string_view path);

// Names that may stand in the section PATH ("" the top level), in the table's order.
[[nodiscard]] std::vector<std::string> key_names(std::string_view path);

// The default as a value. REQUIRES: a key of the schema.
[[nodiscard]] Value default_value(const KeySpec& key);

// The values of SECTION.type, SECTION one of "optimizer" and "scheduler", that this version has.
[[nodiscard]] const std::vector<std::string>& available_types(std::string_view section);
// "A, B or C": those in words.
[[nodiscard]] std::string types_text(std::string_view section);

// True when the word `auto` leaves the value to us; where any word is a value, it is that value.
[[nodiscard]] bool takes_auto(const KeySpec& key);

// A string or a list of nothing but strings.
[[nodiscard]] bool is_strings(const Value& value);

// Returns true if VALUE is of TYPE; 5e8 is an integer.
[[nodiscard]] bool fits_type(KeyType type, const Value& value);

// All problems of TREE against the schema: unknown keys with the nearest name, types, ranges, what
// is not there yet.
[[nodiscard]] std::vector<Problem> check_against_schema(const Value& tree);

// Returns the refusal of a file that is another tool's: accelerate's, or a recipe that names its
// model; nothing: TREE is none.
[[nodiscard]] std::optional<Problem> other_tool_problem(const Value& tree);

// Returns true for an unknown NAME at the top of a config (an empty PATH) or in its section
// `pipeline`, which DeepSpeed ignores, and so do we: all but those that differ from a known one by
// a letter or two, which are mistyped, and dslaunch's own names, which belong into its section.
// VALUE was given under NAME: what the command line says is meant for us and never ignored.
[[nodiscard]] bool is_ignored(const std::string& path, const std::string& name, const Value& value);
// Returns what the ignored NAME, under which VALUE was given, was likely meant for:
// "`gradient_clipping`
// (--set gradient_clipping=1.0)"; an empty text: it speaks of the training, but no key is near;
// nothing: it changes no training.
[[nodiscard]] std::optional<std::string> meant_key(const std::string& path, const std::string& name,
                                                   const Value& value);
// Returns the section that has a key NAME, "zero_optimization", where NAME stands in a wrong place;
// empty: none.
[[nodiscard]] std::string home_of(const std::string& name);

// The schema as a Markdown page (docs/config-keys.md), or as a plain list: a line for each key, or
// some lines of at most WIDTH columns, where it is not 0.
[[nodiscard]] std::string schema_markdown();
[[nodiscard]] std::string schema_text(size_t width = 0);

}  // namespace dslaunch::config
