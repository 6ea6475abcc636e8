// Reads run.json, which run_file.h writes. Any thread.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

namespace dslaunch::launch {

// The content of a run.json.
struct RunRecord {
    nlohmann::json json;  // an object
    // Empty, or nothing, if the file has no such value, or one of another type.
    std::string job_id, target;
    std::string prompts;                // how `generate` uses the trained archive: "text" or "ids"
    std::optional<int64_t> steps = {};  // planned; known when rank 0 has described its run
};

// Reads FOLDER's run.json. Throws Error{kInput} naming the file if it is no JSON object, and what
// read_file() throws.
[[nodiscard]] RunRecord read_run_record(const std::string& folder);
// Returns the same, or nothing if the file is missing or cannot be read.
[[nodiscard]] std::optional<RunRecord> find_run_record(const std::string& folder);

}  // namespace dslaunch::launch
