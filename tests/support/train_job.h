// Training jobs of the fixture models through the real dslaunch.
#pragma once

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "support/fixture_files.h"
#include "support/job_process.h"
#include "support/places.h"
#include "support/text_tools.h"

namespace dslaunch::test {

using Json = nlohmann::json;

// Returns the config of the fixture's reference run: AdamW with the settings in `training`, and
// data in order.
inline Json fixture_config(const Json& facts, int64_t accumulation, int64_t steps) {
    Json config;
    config["train_micro_batch_size_per_gpu"] = facts.at("batch");
    config["gradient_accumulation_steps"] = accumulation;
    config["optimizer"] = {
        {"type", "AdamW"},
        {"params", {{"lr", 1e-3}, {"betas", {0.9, 0.999}}, {"eps", 1e-8}, {"weight_decay", 0.01}}}};
    Json own = {{"steps", steps}};
    own["data"] = {{"train", fixture_path(facts.at("data").at("file").get<std::string>())},
                   {"shuffle", false}};
    if (facts.at("data").contains("context"))
        own["data"]["context"] = facts.at("data").at("context");
    if (!facts.at("loss").is_null())
        own["loss"] = {{"name", facts.at("loss")},
                       {"target", facts.at("data").at("columns").back()}};
    config["dslaunch"] = own;
    return config;
}

// Returns the lines of metrics.jsonl in OUTPUT, all of which must be whole.
inline std::vector<Json> metrics_in(const std::string& output) {
    std::vector<Json> lines;
    std::ifstream file(output + "/metrics.jsonl");
    for (std::string line; std::getline(file, line);) lines.push_back(Json::parse(line));
    return lines;
}

// Returns the values of KEY in the LINES that have it, in order.
inline std::vector<double> values_in(const std::vector<Json>& lines, const std::string& key) {
    std::vector<double> values;
    for (const Json& line : lines)
        if (line.contains(key)) values.push_back(line.at(key).get<double>());
    return values;
}

// Returns the values of KEY in metrics.jsonl in OUTPUT by step. A line that is not whole is passed
// over; if a step has several lines, the last whole line counts.
inline std::map<int64_t, double> values_by_step(const std::string& output, const std::string& key) {
    std::map<int64_t, double> values;
    std::ifstream file(output + "/metrics.jsonl");
    for (std::string line; std::getline(file, line);) {
        const Json json = Json::parse(line, nullptr, false);
        if (!json.is_discarded() && json.contains(key))
            values[json.at("step").get<int64_t>()] = json.at(key).get<double>();
    }
    return values;
}

struct TrainResult {
    int code = -1;
    std::string out;
    std::string err;
    std::vector<Json> metrics;

    [[nodiscard]] std::vector<double> values_of(const std::string& key) const {
        return values_in(metrics, key);
    }
    [[nodiscard]] std::vector<double> losses() const { return values_of("loss"); }
};

// Returns the dslaunch command with OPTIONS (--num_gpus N, or a hostfile, …) that trains MODEL on
// CPUs with CONFIG. Writes CONFIG into FOLDER; --output is PLACE in FOLDER.
inline std::vector<std::string> training_command(const TemporaryFolder& folder,
                                                 const std::vector<std::string>& options,
                                                 const std::string& model, const Json& config,
                                                 const std::string& place = "/out") {
    const std::string path = folder.path() + "/config.json";
    write_file(path, config.dump());
    std::vector<std::string> words = {kDslaunch};
    words.insert(words.end(), options.begin(), options.end());
    words.insert(words.end(),
                 {"--device", "cpu", "--config", path, "--output", folder.path() + place, model});
    return words;
}

// Runs dslaunch with the options WHERE on MODEL with CONFIG; --output is FOLDER/out.
inline TrainResult train(const TemporaryFolder& folder, const std::vector<std::string>& where,
                         const std::string& model, const Json& config) {
    JobProcess process(folder, training_command(folder, where, model, config));
    TrainResult result;
    result.code = process.wait();
    result.out = process.out();
    result.err = process.err();
    result.metrics = metrics_in(folder.path() + "/out");
    return result;
}

}  // namespace dslaunch::test
