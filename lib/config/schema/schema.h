// The table of all config keys (keys.tsv): the keys that DeepSpeed documents, and the section
// `dslaunch`. All code that needs to know keys reads it: the checker, the defaults, `config keys`,
// docs/config-keys.md. No threads.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "config/read/value.h"

namespace dslaunch::config {

// The types, in the same order as their names in schema.cpp.
enum class KeyType : uint8_t {
    kBool,
    kInt,
    kFloat,
    kFloats,  // a number, or a list of two
    kString,
    kStrings,  // one string, or a list of them
    kList,
    kObject,
    kFree  // any value; it is not checked
};

// The way dslaunch treats a key that is given.
enum class KeyStatus : uint8_t {
    kSupported,
    kWithoutEffect,  // accepted and checked, but has no effect here: `note` says why
    kNotYet,         // refused if its value, or the presence of the section, turns something on:
                     // `note` says what is missing or what to use instead
};

// A row of the table.
struct KeySpec {
    std::string path;
    KeyType type = KeyType::kFree;
    std::string fallback;  // the default, as YAML text
    std::string allowed;
    KeyStatus status = KeyStatus::kSupported;
    std::string doc;
    std::string only_for;
    std::string note;
    std::string same_as;  // the key for which PATH is another name; empty if there is none
};

// Returns all keys; a section stands before its keys.
[[nodiscard]] const std::vector<KeySpec>& schema();

// Returns the entry for PATH, which has no wildcards but may match entries with "*" and "[]";
// nullptr if there is none.
[[nodiscard]] const KeySpec* find_key(std::string_view path);

// Returns the names of the keys that a section may have, in the table's order. If PATH is empty,
// the section is the top level.
[[nodiscard]] std::vector<std::string> key_names(std::string_view path);

// Returns the key's default as a value. REQUIRES: a key of the schema.
[[nodiscard]] Value default_value(const KeySpec& key);

// Returns the values of SECTION.type that this version supports; SECTION is "optimizer" or
// "scheduler".
[[nodiscard]] const std::vector<std::string>& available_types(std::string_view section);
// Returns the types of available_types() as a text: "A, B or C".
[[nodiscard]] std::string types_text(std::string_view section);

// Returns true if `auto` lets dslaunch choose the value. For a key that accepts any string, "auto"
// is an ordinary value.
[[nodiscard]] bool takes_auto(const KeySpec& key);

// Returns true for a string or a list that has only strings.
[[nodiscard]] bool is_strings(const Value& value);

// Returns true if VALUE has TYPE; 5e8 counts as an integer.
[[nodiscard]] bool fits_type(KeyType type, const Value& value);

// Returns all problems of TREE that the schema shows: unknown keys with the nearest name, wrong
// types, values out of range, keys that are not supported yet.
[[nodiscard]] std::vector<Problem> check_against_schema(const Value& tree);

// Returns a problem if TREE is a file for another tool: accelerate's config, a recipe that names
// its model, or a model's config.json. Returns nothing for any other TREE.
[[nodiscard]] std::optional<Problem> other_tool_problem(const Value& tree);

// Returns true if the unknown NAME is ignored, as in DeepSpeed. Names are ignored at the top level
// of a config (PATH is empty) and in its section `pipeline`. Three kinds of names are not ignored:
// mistyped names, which differ from a known name by one or two letters; names that belong in the
// section `dslaunch`; and names whose VALUE was set on the command line.
[[nodiscard]] bool is_ignored(const std::string& path, const std::string& name, const Value& value);
// Returns the advice for the ignored NAME with VALUE: "did you mean `gradient_clipping` (--set
// gradient_clipping=1.0)?". Returns an empty text if NAME is about the training but no key is
// similar. Returns nothing if NAME does not affect training.
[[nodiscard]] std::optional<std::string> meant_key(const std::string& path, const std::string& name,
                                                   const Value& value);
// Returns a section that has a key NAME, such as "zero_optimization"; empty if no section has it.
// It is for a user who gave NAME in the wrong section.
[[nodiscard]] std::string home_of(const std::string& name);

// schema_markdown() returns the schema as a Markdown page (docs/config-keys.md). schema_text()
// returns a plain list. If WIDTH is 0, each key has one line; otherwise lines are broken at WIDTH
// columns.
[[nodiscard]] std::string schema_markdown();
[[nodiscard]] std::string schema_text(size_t width = 0);

}  // namespace dslaunch::config
