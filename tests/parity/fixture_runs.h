// Runs the fixtures through the real dslaunch for the parity tests: the hosts and ranks on which
// they run, the results that they must have, and the weights that they wrote.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <map>
#include <set>
#include <utility>

#include "support/catch.h"
#include "support/every_nth.h"
#include "support/train_job.h"

namespace dslaunch::test {

inline std::vector<std::string> ranks(int count) {
    return {"--num_gpus", std::to_string(count)};
}

// Returns the options for hosts that are pretended on this machine, with sockets between them.
inline std::vector<std::string> hosts(const TemporaryFolder& folder,
                                      const std::vector<int>& slots) {
    std::string text;
    for (size_t i = 0; i < slots.size(); ++i)
        text += "node" + std::to_string(i) + " slots=" + std::to_string(slots[i]) + "\n";
    write_file(folder.path() + "/hostfile", text);
    return {"--hostfile", folder.path() + "/hostfile", "--launcher", "local"};
}

struct ScheduleShape {
    int stages = 1;
    std::string schedule = "1f1b";
};

// Returns the shapes: one stage, which has nothing to schedule; then each schedule with two to four
// stages, if a model of SEGMENTS segments has a segment for each part.
inline std::vector<ScheduleShape> schedule_shapes(int segments = 8) {
    std::vector<ScheduleShape> shapes = {{}};
    for (int stages = 2; stages <= 4; ++stages)
        for (const auto& [schedule, chunks] :
             {std::pair{"gpipe", 1}, {"1f1b", 1}, {"zb-h1", 1}, {"interleaved", 2}, {"zb-v", 2}})
            if (stages * chunks <= segments) shapes.push_back({stages, schedule});
    return shapes;
}

inline TrainResult train_well(const TemporaryFolder& folder, const std::vector<std::string>& where,
                              const std::string& name, const Json& config) {
    TrainResult result = train(folder, where, fixture_archive(name), config);
    INFO(name << "\n" << result.err);
    REQUIRE(result.code == 0);
    return result;
}

// Makes a GPT with 128 tokens and 4 heads in FOLDER, and returns its path.
inline std::string make_gpt(const TemporaryFolder& folder, int width, int layers, int64_t context) {
    const std::string path = folder.path() + "/gpt.pt";
    run_well(folder, {kDslaunch, "model", "new", "gpt", "--vocab", "128", "--width",
                      std::to_string(width), "--heads", "4", "--layers", std::to_string(layers),
                      "--context", std::to_string(context), "-o", path});
    return path;
}

inline double largest_difference(const std::vector<double>& a, const std::vector<double>& b) {
    REQUIRE(a.size() == b.size());
    double largest = 0;
    for (size_t i = 0; i < a.size(); ++i) largest = std::max(largest, std::abs(a[i] - b[i]));
    return largest;
}

// Returns the distance that a loss may have from the reference trace. Another processor may have
// computed the trace, and its kernels add in another order. In a smooth model this changes only the
// last bits. The ReLUs and max pooling of both convnets choose between values: once a run chooses
// another value (seen from step 28 on), its losses diverge. The bound is therefore wide from step
// 25 on.
inline double trace_bound(const std::string& name, size_t step) {
    return name.ends_with("convnet") && step >= 25 ? 1e-2 : 1e-4;
}

// Checks 50 steps against the reference trace, within trace_bound(). ZERO: the config's
// zero_optimization, or null.
inline void check_traces(const std::vector<std::string>& names,
                         const std::set<std::pair<int, int>>& runs, const Json& zero) {
    double largest = 0;
    int compared = 0;
    for (const std::string& name : names) {
        const Json facts = fixture_facts(name);
        if (!facts.contains("training")) continue;
        for (const Json& run : facts.at("training").at("runs")) {
            const int world_size = run.at("world_size").get<int>(),
                      accumulation = run.at("accumulation").get<int>();
            if (runs.count({world_size, accumulation}) == 0) continue;
            const TemporaryFolder folder;
            Json config = fixture_config(facts, accumulation, 50);
            if (!zero.is_null()) config["zero_optimization"] = zero;
            const auto trained = train_well(folder, ranks(world_size), name, config);
            const auto reference = run.at("losses").get<std::vector<double>>();
            INFO(name << " on " << world_size << " ranks, " << accumulation << " micro steps, ZeRO "
                      << zero.dump());
            REQUIRE(trained.losses().size() == 50);
            const std::vector<double> losses = trained.losses();
            for (size_t step = 0; step < losses.size(); ++step) {
                INFO("step " << step + 1);
                CHECK(std::abs(losses[step] - reference[step]) < trace_bound(name, step));
            }
            largest = std::max(largest, largest_difference(losses, reference));
            ++compared;
        }
    }
    std::printf("%d runs of 50 steps: losses differ from PyTorch's by at most %.2e\n", compared,
                largest);
    REQUIRE(compared > 0);
}

struct Stored {
    std::string dtype;
    std::vector<int64_t> shape;
    std::string bytes;
};

// Reads a safetensors file by its published layout: 8 bytes of header length, JSON, data.
inline std::map<std::string, Stored> read_safetensors(const std::string& path) {
    const std::string bytes = content_of(path);
    uint64_t header = 0;
    REQUIRE(bytes.size() > sizeof header);
    std::memcpy(&header, bytes.data(), sizeof header);
    std::map<std::string, Stored> tensors;
    const Json entries = Json::parse(bytes.substr(8, header));
    for (const auto& [name, entry] : entries.items()) {
        if (name == "__metadata__") continue;
        const size_t begin = entry.at("data_offsets")[0], end = entry.at("data_offsets")[1];
        tensors[name] = {entry.at("dtype"), entry.at("shape").get<std::vector<int64_t>>(),
                         bytes.substr(8 + header + begin, end - begin)};
    }
    return tensors;
}

// Returns the elements of STORED, which must be fp32.
inline std::vector<float> floats_of(const Stored& stored) {
    REQUIRE(stored.dtype == "F32");
    std::vector<float> values(stored.bytes.size() / sizeof(float));
    std::memcpy(values.data(), stored.bytes.data(), stored.bytes.size());
    return values;
}

using Weights = std::map<std::string, Stored>;

inline void check_equal_weights(const Weights& found, const Weights& expected) {
    REQUIRE(found.size() == expected.size());
    for (const auto& [name, stored] : expected) {
        INFO(name);
        REQUIRE(found.count(name) == 1);
        CHECK(found.at(name).bytes == stored.bytes);
    }
}

}  // namespace dslaunch::test
