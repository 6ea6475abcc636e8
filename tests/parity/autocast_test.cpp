// Compares torch_autocast with stock PyTorch's torch.autocast (autocast_reference.json, written by
// autocast_reference.py): weights stay fp32, and 30 steps have PyTorch's losses and, in float16,
// its loss scales.
#include "fixture_runs.h"

namespace dslaunch::test {
namespace {

Json autocast_config(const Json& run) {
    Json config = fixture_config(fixture_facts(run.at("model").get<std::string>()),
                                 run.at("accumulation").get<int64_t>(), 30);
    config["torch_autocast"] = {{"enabled", true}, {"dtype", run.at("dtype")}};
    return config;
}

// Returns PyTorch's results for RUN. If RUN has several results, made with different kernels,
// returns the one whose losses are nearest to LOSSES.
const Json& nearest_of(const Json& run, const std::vector<double>& losses) {
    const auto distance = [&](const Json& made) {
        return largest_difference(losses, made.at("losses").get<std::vector<double>>());
    };
    const Json* nearest = &run;
    if (run.contains("others"))
        for (const Json& other : run.at("others"))
            if (distance(other) < distance(*nearest)) nearest = &other;
    return *nearest;
}

// Checks the runs of the reference. Each element type runs in one world size, or in both world
// sizes if ALL_WORLDS.
void check_autocast(bool all_worlds) {
    const Json reference = Json::parse(
        content_of(source_dir() + std::string("/tests/parity/autocast_reference.json")));
    double largest = 0;
    int64_t steps = 0;
    for (const Json& run : reference.at("runs")) {
        const std::string name = run.at("model");
        const bool bf16 = run.at("dtype") == "bfloat16";
        const int world_size = run.at("world_size");
        if (!all_worlds && bf16 != (world_size == 2)) continue;
        const TemporaryFolder folder;
        const TrainResult trained =
            train_well(folder, ranks(world_size), name, autocast_config(run));
        INFO(name << " in " << run.at("dtype") << " on " << world_size << " ranks");
        const std::vector<double> losses = trained.losses();
        REQUIRE(losses.size() == run.at("losses").size());
        const Json& made = nearest_of(run, losses);
        const auto wanted = made.at("losses").get<std::vector<double>>();
        for (size_t step = 0; step < losses.size(); ++step) {
            INFO("step " << step + 1);
            CHECK(std::abs(losses[step] - wanted[step]) < (bf16 ? 1e-2 : 2e-3) * wanted[step]);
        }
        if (!bf16)
            CHECK(trained.values_of("loss_scale") == made.at("scales").get<std::vector<double>>());
        largest = std::max(largest, largest_difference(losses, wanted));
        steps += std::ssize(losses);
    }
    std::printf("%lld steps under autocast: losses differ from PyTorch's by at most %.2e\n",
                static_cast<long long>(steps), largest);
    CHECK(steps >= 300);
}

}  // namespace

TEST_CASE("torch_autocast has the losses of stock PyTorch's autocast, and its scales") {
    check_autocast(false);
}

TEST_CASE("torch_autocast has the losses of stock PyTorch's autocast in every world", "[.long]") {
    check_autocast(true);
}

}  // namespace dslaunch::test
