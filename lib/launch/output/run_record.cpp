#include "launch/output/run_record.h"

#include "base/error.h"
#include "base/fd.h"
#include "base/text.h"

namespace dslaunch::launch {
namespace {

using Json = nlohmann::json;

constexpr size_t kRunFileBytesMax = 64U << 20;

// Returns the text at PLACE in RECORD; empty if there is none.
std::string text_at(const Json& record, const char* place) {
    const Json::json_pointer pointer(place);
    const bool is_text = record.contains(pointer) && record.at(pointer).is_string();
    return is_text ? record.at(pointer).get<std::string>() : "";
}

std::optional<int64_t> steps_of(const Json& record) {
    try {
        for (const Json& value : record.at("run").at("config").at("values"))
            if (value.at("path") == "dslaunch.steps") return value.at("value").get<int64_t>();
    } catch (const Json::exception&) {
        // Rank 0 has not described its run yet.
    }
    return std::nullopt;
}

}  // namespace

RunRecord read_run_record(const std::string& folder) {
    const std::string path = folder + "/run.json";
    Json json = Json::parse(read_file(path, kRunFileBytesMax), nullptr, /*allow_exceptions=*/false);
    if (!json.is_object()) fail(ExitCode::kInput, "{}: is not a JSON object", printable(path));
    RunRecord record{{},
                     text_at(json, "/job_id"),
                     text_at(json, "/target"),
                     text_at(json, "/run/prompts"),
                     steps_of(json)};
    record.json = std::move(json);
    return record;
}

std::optional<RunRecord> find_run_record(const std::string& folder) {
    try {
        return read_run_record(folder);
    } catch (const Error&) {
        return std::nullopt;
    }
}

}  // namespace dslaunch::launch
