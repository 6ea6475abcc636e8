// The one table of config keys, DeepSpeed's documented ones and "dslaunch": keys.tsv. All code that
// knows keys reads it: the checker, the defaults, `config keys`, docs/config-keys.md. No threads.
#pragma once

#include "config/read/value.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace dslaunch::config {

// The types in the order of the table's names for them.
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

// Returns every key; a section comes before its keys.
[[nodiscard]] const std::vector<KeySpec>& schema();

// Returns the entry for PATH (concrete, "*" and "[]" matched), nullptr when there is none.
[[nodiscard]] const KeySpec* find_key(std::string_view path);

// Returns the names that the section PATH ("" the top level) may have, in the table's order.
[[nodiscard]] std::vector<std::string> key_names(std::string_view path);

// Returns the default as a value. REQUIRES: a key of the schema.
[[nodiscard]] Value default_value(const KeySpec& key);

// Returns this version's values of SECTION.type; SECTION is "optimizer" or "scheduler".
[[nodiscard]] const std::vector<std::string>& available_types(std::string_view section);
// Returns them in words: "A, B or C".
[[nodiscard]] std::string types_text(std::string_view section);

// Returns true if `auto` leaves the value to us; where any word is a value, it is that value.
[[nodiscard]] bool takes_auto(const KeySpec& key);

// Returns true for a string or a list of nothing but strings.
[[nodiscard]] bool is_strings(const Value& value);

// Returns true if VALUE is of TYPE; 5e8 is an integer.
[[nodiscard]] bool fits_type(KeyType type, const Value& value);

// Returns all problems of TREE against the schema: unknown keys with the nearest name, types,
// ranges, keys that are not there yet.
[[nodiscard]] std::vector<Problem> check_against_schema(const Value& tree);

// Returns the refusal of another tool's file: accelerate's, or a recipe that names its model;
// nothing: TREE is not such a file.
[[nodiscard]] std::optional<Problem> other_tool_problem(const Value& tree);

// Returns true for an unknown NAME at the top of a config (an empty PATH) or in its section
// `pipeline`. DeepSpeed and we ignore such names, except mistyped ones, which differ from a known
// name by a letter or two, and dslaunch's own, which belong into its section. VALUE was given under
// NAME: settings of the command line are for us and never ignored.
[[nodiscard]] bool is_ignored(const std::string& path, const std::string& name, const Value& value);
// Returns the likely meaning of the ignored NAME with VALUE: "`gradient_clipping` (--set
// gradient_clipping=1.0)"; an empty text: it is about the training, but no key is near; nothing: it
// changes no training.
[[nodiscard]] std::optional<std::string> meant_key(const std::string& path, const std::string& name,
                                                   const Value& value);
// Returns the section with a key NAME, "zero_optimization", where NAME stands in a wrong place;
// empty: no section has it.
[[nodiscard]] std::string home_of(const std::string& name);

// Return the schema as a Markdown page (docs/config-keys.md), or as a plain list: a line for each
// key, or some lines of at most WIDTH columns, if it is not 0.
[[nodiscard]] std::string schema_markdown();
[[nodiscard]] std::string schema_text(size_t width = 0);

}  // namespace dslaunch::config
