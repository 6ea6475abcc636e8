// The tables of flops_profiler, from made-up costs of modules.
#include "plan/print/module_table.h"

#include "base/text.h"
#include "support/catch.h"

namespace dslaunch {

using namespace plan;
namespace {

using std::chrono::milliseconds;

// Returns two blocks with a layer each, and a head. The times are the times of two micro steps.
ModelInfo two_blocks() {
    ModelInfo model;
    for (const auto& [name, numel] : {std::pair{"blocks.0.fc.weight", 600},
                                      {"blocks.1.fc.weight", 600},
                                      {"head.weight", 800},
                                      {"of_another_stage.weight", 5000}}) {
        ParameterInfo& made = model.parameters.emplace_back();
        made.name = name;
        made.numel = numel;
    }
    model.segments.emplace_back().parameters = {0, 1, 2};
    return model;
}

const std::vector<ModuleCost> kCosts = {
    {"", 0, milliseconds(2), {}, milliseconds(4)},
    {"blocks.0.fc", 4'000'000, milliseconds(4), milliseconds(2), milliseconds(8)},
    {"blocks.1.fc", 4'000'000, milliseconds(6), milliseconds(2), milliseconds(12)},
    {"head", 8'000'000, milliseconds(8), {}, milliseconds(16)},
};

ProfiledStep step() {
    ProfiledStep step;
    step.step = 6;
    step.steps_done = 5;
    step.micro_steps = 2;
    step.micro_rows = 4;
    step.rows = 16;
    step.world_size = 2;
    step.data_parallel_size = 2;
    step.time = milliseconds(80);
    step.peak_tflops = 0.003;
    return step;
}

}  // namespace

TEST_CASE("parameters, MACs and times add up from the layers to the model, per micro step") {
    const std::string text = module_tables(two_blocks(), kCosts, step(), {});
    INFO(text);
    // 16 MFLOP in 2 micro steps: 8 MFLOP, 4 MMACs each. Forward takes 20 ms in all, 10 ms each.
    for (const char* line :
         {"step 6, after 5 steps", "params of this rank", "2 K", "4 MMACs", "8 MFLOP", "10.00 ms",
          "800 MFLOP/s", "20.00 ms", "recompute latency per micro step",
          // 3 x 16 MFLOP in 80 ms are 600 MFLOP/s, a fifth of the peak; 16 rows in 80 ms.
          "600 MFLOP/s", "20.0 %", "200.00"})
        CHECK(text.find(line) != std::string::npos);
    const std::string row =
        "model        2 K  100.0 %   4 M  100.0 %  10.000  100.0 %  20.000  100.0 %";
    const size_t at = text.find(row);
    REQUIRE(at != std::string::npos);
    const size_t end = at + row.size();
    CHECK(trim(text.substr(end, text.find('\n', end) - end)) == "800 MFLOP/s");
    CHECK(text.find("of_another_stage") == std::string::npos);
}

TEST_CASE("levels sum up equal modules, and name the largest first") {
    const std::string text = module_tables(two_blocks(), kCosts, step(), {-1, 2, false});
    INFO(text);
    CHECK(text.find("level 1:\n"
                    "    params      blocks 1.2 K, head 800\n"
                    "    MACs        blocks 2 MMACs, head 2 MMACs\n"
                    "    fwd latency blocks 5.00 ms, head 4.00 ms\n") != std::string::npos);
    CHECK(text.find("level 3:\n"
                    "    params      blocks.*.fc 1.2 K\n") != std::string::npos);
    CHECK(text.find("fwd FLOPS\n") == std::string::npos);
}

TEST_CASE("module_depth limits the levels and the tree") {
    const std::string text = module_tables(two_blocks(), kCosts, step(), {1, 1, true});
    INFO(text);
    CHECK(text.find("level 1:") != std::string::npos);
    CHECK(text.find("level 2:") == std::string::npos);
    CHECK(text.find("  blocks") != std::string::npos);
    CHECK(text.find("fc") == std::string::npos);
}

}  // namespace dslaunch
