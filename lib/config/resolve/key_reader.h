// Reads the keys of a config for resolve(): looks each value up in the schema, records it with its
// origin, and collects problems and notes. Internal to lib/config. One thread; lives for one call
// of resolve().
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "config/resolve/resolved.h"
#include "config/schema/schema.h"

namespace dslaunch::config {

// Returns the strings in VALUE, which is one string or a list of strings.
[[nodiscard]] std::vector<std::string> texts_of(const Value& value);
// REQUIRES: a number.
[[nodiscard]] int64_t as_integer(const Value& value);

// The reader of one config's keys. Every function takes the schema's main name of a key; problems
// and notes use the name that the user wrote.
class KeyReader {
  public:
    // REQUIRES: CONFIG outlives the reader.
    KeyReader(const TrainConfig& config, const ResolveOptions& options);

    // Returns the config, with old forms of sections converted to the new ones.
    [[nodiscard]] const Value& root() const { return root_; }
    // Returns the facts about the run that resolve() was called with.
    [[nodiscard]] const ResolveOptions& options() const { return options_; }

    // Adds a problem about the value given at PATH; resolving goes on with the next key.
    void problem(const std::string& path, std::string message);
    // Records that PATH has the value VALUE, from ORIGIN. UNSAID: see ResolvedValue::unsaid.
    void record(const std::string& path, Value value, Origin origin, bool unsaid = false);
    // Records that PATH has the value VALUE because of FORMULA, not because the user gave it.
    void derive(const std::string& path, Value value, const std::string& formula,
                bool unsaid = false);

    // Returns the value that the user gave; nullptr if there is no value, or if it is null, `auto`
    // or of the wrong type. A wrong type was reported already.
    [[nodiscard]] const Value* given(const std::string& path);
    // has() returns true if the user gave a value that can be used. is_true() returns true if the
    // user gave the bool true.
    [[nodiscard]] bool has(const std::string& path) { return given(path) != nullptr; }
    [[nodiscard]] bool is_auto(const std::string& path);
    [[nodiscard]] bool has_or_auto(const std::string& path) { return has(path) || is_auto(path); }
    [[nodiscard]] bool is_true(const std::string& path);
    // Returns the optimizer's name as the user wrote it. REQUIRES: a name was given.
    [[nodiscard]] const std::string& optimizer_name() const;
    // Returns the value that Hugging Face's Trainer uses for `auto` at PATH, and adds it to the
    // note on `auto`; nothing if the Trainer does not set PATH.
    std::optional<Value> trainer_value(const std::string& path);

    // Returns and records the value of PATH: the given value, otherwise the schema's default.
    Value take(const std::string& path);
    // Return the value of take() as a C++ type. REQUIRES: in the schema, the key at PATH has the
    // corresponding type.
    int64_t take_integer(const std::string& path) { return as_integer(take(path)); }
    double take_number(const std::string& path) { return take(path).as_double(); }
    bool take_bool(const std::string& path) { return take(path).boolean; }
    std::string take_text(const std::string& path) { return take(path).text; }
    std::vector<std::string> take_texts(const std::string& path) { return texts_of(take(path)); }
    // Returns the number given at PATH; VALUE if no number is given. VALUE is the default of the
    // optimizer or schedule with the name WHOSE. It differs from the default in the schema.
    double number_or(const std::string& path, double value, const std::string& whose);
    int64_t integer_or(const std::string& path, int64_t value, const std::string& whose);

    // Adds a note about the value given at PATH. The note will be printed as TEXT.
    void note(const std::string& path, const std::string& text);
    // Adds a warning TEXT about the value given at PATH, because the value is probably a mistake.
    void warn(const std::string& path, const std::string& text);
    // If PATH was given, adds a note that it has no effect in this run, because of REASON.
    void unread(const std::string& path, const std::string& reason);
    // Adds a note that belongs to no key.
    void add_note(std::string text) { result_.notes.push_back(std::move(text)); }
    // Adds a warning that belongs to no key.
    void add_warning(std::string text) { result_.warnings.push_back(std::move(text)); }
    // Adds "PATH is VALUE" to the note on `auto`.
    void note_auto(const std::string& path, const Value& value);
    // Adds TEXT to the line about values that were chosen here because the user gave none.
    void choose(const std::string& text) { chosen_.push_back(text); }

    // Adds the notes on values that were given and have no effect, and returns all results together
    // with RUN. REQUIRES: called once.
    [[nodiscard]] Resolved finish(RunConfig run);

  private:
    // Returns the name under which PATH was given: its main name or another one in the schema. Adds
    // a problem, once, if both were given.
    std::string written(const std::string& path);
    Value take_auto(const std::string& path);
    [[nodiscard]] std::string said_of(const std::string& path, const std::string& text);
    void note_autos();
    void note_begun();
    void note_ignored(const std::string& path, const std::string& name, const Value& value);
    void note_unknown();
    void note_section(const KeySpec& key, const std::string& path, const Value& value);
    void warn_without_switch(const std::string& path, const Value& section);
    void collect_notes(const std::string& path, const Value& value);

    const std::string name_;  // the config's name
    const Value root_;
    ResolveOptions options_;
    Resolved result_;
    std::set<std::string> named_twice_;       // names whose problem is reported
    std::vector<std::string> autos_;          // "KEY VALUE"
    std::vector<std::string> chosen_;         // "lr 2e-05 (--lr)"
    std::vector<std::string> unknown_names_;  // ignored names that are not about training
    Origin unknown_origin_;                   // the origin of the first of these names
};

// Converts sections and values that DeepSpeed accepts in several forms to one form. For example,
// `zero_optimization: true` becomes stage 1. In sections whose values DeepSpeed converts to the
// key's type, "true" and 1 become true, and "2" becomes 2. Keeps the origins. REQUIRES: ROOT is an
// object. Defined in deepspeed_forms.cpp.
[[nodiscard]] Value in_one_form(Value root);

}  // namespace dslaunch::config
