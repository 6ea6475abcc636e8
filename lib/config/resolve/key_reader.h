// The keys of a config as resolve() reads them: each value through the schema, recorded with its
// origin; problems and notes collected. Internal to lib/config. One thread; lives for one call of
// resolve().
#pragma once

#include "config/resolve/resolved.h"
#include "config/schema/schema.h"

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace dslaunch::config {

// Returns the texts of VALUE, one string or a list of strings.
[[nodiscard]] std::vector<std::string> texts_of(const Value& value);
// REQUIRES: a number.
[[nodiscard]] int64_t as_integer(const Value& value);

// Every function takes a key's own name; problems and notes name it as it was written.
class KeyReader {
  public:
    // REQUIRES: CONFIG outlives the reader.
    KeyReader(const TrainConfig& config, const ResolveOptions& options);

    // Returns the config, with old forms of sections in their new ones.
    [[nodiscard]] const Value& root() const { return root_; }
    [[nodiscard]] const ResolveOptions& options() const { return options_; }

    void problem(const std::string& path, std::string message);
    void record(const std::string& path, Value value, Origin origin, bool unsaid = false);
    // Records that PATH holds VALUE because of FORMULA, not because the user gave it.
    void derive(const std::string& path, Value value, const std::string& formula,
                bool unsaid = false);

    // Returns the value that the user gave, nullptr for nothing, null and auto. A value of the
    // wrong type has been reported.
    [[nodiscard]] const Value* given(const std::string& path);
    [[nodiscard]] bool has(const std::string& path) { return given(path) != nullptr; }
    [[nodiscard]] bool is_auto(const std::string& path);
    [[nodiscard]] bool has_or_auto(const std::string& path) { return has(path) || is_auto(path); }
    [[nodiscard]] bool is_true(const std::string& path);
    // Returns the name of the optimizer, as it was given. REQUIRES: one was.
    [[nodiscard]] const std::string& optimizer_name() const;
    // Returns the value that Hugging Face's Trainer has in the place of `auto` at PATH, and adds it
    // to the note on autos; nothing where the Trainer leaves PATH alone.
    std::optional<Value> trainer_value(const std::string& path);

    // Returns the value that holds, and records it: given, else the schema's default.
    Value take(const std::string& path);
    int64_t take_integer(const std::string& path) { return as_integer(take(path)); }
    double take_number(const std::string& path) { return take(path).as_double(); }
    bool take_bool(const std::string& path) { return take(path).boolean; }
    std::string take_text(const std::string& path) { return take(path).text; }
    std::vector<std::string> take_texts(const std::string& path) { return texts_of(take(path)); }
    // Returns the number given at PATH, else VALUE, the default of WHOSE optimizer or schedule
    // where the schema has another.
    double number_or(const std::string& path, double value, const std::string& whose);
    int64_t integer_or(const std::string& path, int64_t value, const std::string& whose);

    // Adds a printed line: TEXT about the value given at PATH.
    void note(const std::string& path, const std::string& text);
    // Adds the same as a warning: it is likely to be a mistake.
    void warn(const std::string& path, const std::string& text);
    // Adds a note if PATH was given: it has no effect in this run, because of REASON.
    void unread(const std::string& path, const std::string& reason);
    // Adds a line that belongs to no key.
    void add_note(std::string text) { result_.notes.push_back(std::move(text)); }
    void add_warning(std::string text) { result_.warnings.push_back(std::move(text)); }
    // Adds to the line about `auto`: PATH is VALUE.
    void note_auto(const std::string& path, const Value& value);
    // Adds to the line about choices for which nothing names a value.
    void choose(const std::string& text) { chosen_.push_back(text); }

    // Adds the notes on values given and not read, and returns everything found with RUN. REQUIRES:
    // called once.
    [[nodiscard]] Resolved finish(RunConfig run);

  private:
    // Returns the name under which PATH was given: its own, or another one of the schema. Adds a
    // problem, once, when both were.
    std::string written(const std::string& path);
    Value take_auto(const std::string& path);
    [[nodiscard]] std::string said_of(const std::string& path, const std::string& text);
    void note_autos();
    void note_begun();
    void note_ignored(const std::string& path, const std::string& name, const Value& value);
    void note_unknown();
    void note_section(const KeySpec& key, const std::string& path, const Value& value);
    void collect_notes(const std::string& path, const Value& value);

    const std::string name_;  // the config's
    const Value root_;
    ResolveOptions options_;
    Resolved result_;
    std::set<std::string> named_twice_;       // reported
    std::vector<std::string> autos_;          // "KEY VALUE"
    std::vector<std::string> chosen_;         // "lr 2e-05 (--lr)"
    std::vector<std::string> unknown_names_;  // ignored, and about no training
    Origin unknown_origin_;                   // of the first of them
};

// deepspeed_forms.cpp: the forms that DeepSpeed takes a section or a value in, as one.
// Returns ROOT with `zero_optimization: true` as stage 1, and with the values of the sections that
// DeepSpeed checks by type in the type that they spell: "true" and 1 are true, "2" is 2. Origins
// stay. REQUIRES: an object.
[[nodiscard]] Value in_one_form(Value root);

}  // namespace dslaunch::config
