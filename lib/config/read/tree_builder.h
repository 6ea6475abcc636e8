// The building of a config's tree from what a reader of JSON or YAML finds in the text, one thing
// after the other: places, duplicate keys and limits are the same for both. No threads.
#pragma once

#include "config/read/train_config.h"

#include <optional>
#include <string>
#include <vector>

namespace dslaunch::config {

// From 1; the column in bytes.
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
    // Problems that do not end the reading, as duplicate keys, go into CONFIG, which must outlive
    // the builder. FIXED_ORIGIN: what is said of every value; empty: its place in CONFIG's text.
    TreeBuilder(TrainConfig& config, Origin fixed_origin)
        : config_(config), fixed_origin_(std::move(fixed_origin)) {}

    // An object or a list begins; what comes until its close() is in it. All three throw
    // StopReading: a limit, or no plain name where a key must be.
    void open(Value::Kind kind, Place place);
    void add(Value value, Place place);
    void take_key(const std::string& key, Place place);
    // REQUIRES: something is open.
    void close();

    // A key comes next, no value.
    [[nodiscard]] bool awaits_key() const;
    // Throws StopReading that names the key whose value was awaited.
    [[noreturn]] void stop(Place place, std::string message) const;
    [[nodiscard]] Origin origin(Place place) const;
    // The whole tree; nothing: there was no value.
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

    TrainConfig& config_;
    Origin fixed_origin_;
    std::vector<Open> open_;
    std::optional<Value> root_;
};

}  // namespace dslaunch::config
