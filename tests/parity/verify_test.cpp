// dslaunch verify, through the real programs: jobs with every kind of parallelism compute what one
// rank alone computes, and a job that it cannot check is refused with the reason.
#include <fmt/core.h>
#include <torch/csrc/jit/api/module.h>

#include "fixture_runs.h"
#include "support/script_module.h"

namespace dslaunch::test {
namespace {

struct Verified {
    int code = -1;
    std::string out, err;
};

Verified verify(const std::vector<std::string>& where, const std::string& model, const Json& config,
                const TemporaryFolder& folder) {
    const std::string path = folder.path() + "/config.json";
    write_file(path, config.dump());
    std::vector<std::string> words = {kDslaunch, "verify"};
    words.insert(words.end(), where.begin(), where.end());
    words.insert(words.end(), {"--device", "cpu", "--config", path, model});
    JobProcess process(folder, words);
    Verified result;
    result.code = process.wait();
    result.out = process.out();
    result.err = process.err();
    return result;
}

Json config_with(const std::string& model, const Json& changes) {
    Json config = fixture_config(fixture_facts(model), 2, 50);
    config["gradient_clipping"] = 0.5;
    config.merge_patch(changes);
    return config;
}

struct Kind {
    const char* model;
    int ranks;
    bool over_hosts;
    bool equal_bits;
    Json changes;
};

Json zero(int stage) {
    return {{"zero_optimization", {{"stage", stage}, {"reduce_bucket_size", 20000}}}};
}

Json pipeline(int stages, const char* schedule) {
    return {{"dslaunch", {{"pipeline", {{"stages", stages}, {"schedule", schedule}}}}}};
}

}  // namespace

TEST_CASE("jobs of every kind are what one rank alone computes") {
    const Json one_cycle = {
        {"type", "OneCycle"},
        {"params", {{"cycle_min_lr", 1e-3}, {"cycle_max_lr", 1e-2}, {"cycle_first_step_size", 3}}}};
    const std::vector<Kind> kinds = {
        {"gpt-dropout", 3, false, true, zero(1)},
        {"gpt", 2, true, true, zero(2)},
        {"gpt", 2, false, true, {{"scheduler", one_cycle}}},  // a scheduler that changes the betas
                                                              // too
        {"gpt-tied", 2, true, true, zero(3)},
        {"llama", 2, false, false, {{"dslaunch", {{"loss", {{"mean", "token"}}}}}}},
        {"convnet", 2, false, false, zero(3)},  // a model with buffers
        {"exported-convnet", 2, false, false, zero(2)},
        {"gpt", 4, false, true, pipeline(2, "1f1b")},
        {"gpt-tied", 2, false, false, pipeline(2, "zb-v")},
        {"llama", 2, false, false, {{"dslaunch", {{"tensor", {{"size", 2}}}}}}},
        {"gpt", 2, false, false, {{"dslaunch", {{"sequence", {{"size", 2}}}}}}},
        {"llama", 8, false, false, {{"dslaunch", {{"sequence", {{"size", 8}}}}}}},  // attention in
                                                                                    // a ring
        {"qwen2", 2, false, false, {{"bf16", {{"enabled", true}}}}},
        {"gpt2", 2, false, false, {{"fp16", {{"enabled", true}, {"initial_scale_power", 8}}}}}};
    for (const Kind& kind : kinds) {
        const TemporaryFolder folder;
        const std::vector<std::string> where =
            kind.over_hosts ? hosts(folder, std::vector<int>(static_cast<size_t>(kind.ranks), 1))
                            : ranks(kind.ranks);
        const Json config = config_with(kind.model, kind.changes);
        const Verified verified = verify(where, fixture_archive(kind.model), config, folder);
        INFO(kind.model << " " << config.dump() << "\n" << verified.out << verified.err);
        CHECK(verified.code == 0);
        CHECK_THAT(verified.out,
                   Catch::Contains(fmt::format("2 steps of {} ranks match what one rank alone "
                                               "computes: loss, gradients, updates by ",
                                               kind.ranks)));
        CHECK_THAT(verified.out, Catch::Contains("The model's own forward, as LibTorch runs it, "
                                                 "has the same loss and gradients"));
        if (kind.equal_bits)
            CHECK_THAT(verified.out, Catch::Contains("have the same bits") &&
                                         !Catch::Contains("the others differ"));
    }
}

TEST_CASE("states on disk are what the update before left there") {
    const TemporaryFolder folder;
    Json config = config_with("gpt", zero(3));
    config["zero_optimization"]["offload_optimizer"] = {{"device", "nvme"},
                                                        {"nvme_path", folder.path()}};
    config["zero_optimization"]["sub_group_size"] = 4096;
    const Verified verified = verify(ranks(2), fixture_archive("gpt"), config, folder);
    INFO(verified.out << verified.err);
    CHECK(verified.code == 0);
}

TEST_CASE("verify says what it cannot check, and keeps nothing") {
    const TemporaryFolder folder;
    const Verified state =
        verify(ranks(2), fixture_archive("state"), config_with("state", zero(1)), folder);
    INFO(state.err);
    CHECK(state.code == 66);
    CHECK_THAT(state.err, Catch::Contains("forward writes the attribute `"));
    const Verified interface =
        verify(ranks(1), fixture_archive("interface"), config_with("interface", zero(1)), folder);
    INFO(interface.err);
    CHECK(interface.code == 66);
    CHECK_THAT(interface.err, Catch::Contains("takes a whole module as an argument"));
    CHECK(!std::filesystem::exists(folder.path() + "/out"));
}

TEST_CASE("buffers that forward moves and computes with: each rank's own, the mean, or rank 0's") {
    const TemporaryFolder models;
    const std::string model = models.path() + "/running.pt";
    script_module(
        "def forward(self, x: Tensor) -> Tensor:\n"
        "    h = torch.linear(x, self.w)\n"
        "    self.mean.mul_(0.5).add_(torch.mean(h.detach(), [0]), alpha=0.5)\n"
        "    return (h - self.mean) * self.scale\n",
        {{"w", wave({10, 64}, 1)}}, {{"mean", wave({10}, 2)}, {"scale", ramp(10)}})
        .save(model);
    Json config = fixture_config(fixture_facts("mlp"), 2, 3);
    for (const char* key : {"", "average_buffers", "broadcast_buffers"}) {
        for (const int stage : {0, 2}) {
            const TemporaryFolder folder;
            Json changed = config;
            if (key[0] != 0) changed["dslaunch"][key] = true;
            changed["zero_optimization"] = {{"stage", stage}};
            const Verified verified = verify(ranks(3), model, changed, folder);
            INFO(key << " " << stage << "\n" << verified.out << verified.err);
            CHECK(verified.code == 0);
            CHECK_THAT(verified.out,
                       Catch::Contains("have the same bits") && Catch::Contains("buffers"));
            const bool says =
                verified.err.find("The model computes with mean, which each rank updates") !=
                std::string::npos;
            CHECK(says == (key[0] == 0));
        }
    }
    config["dslaunch"]["average_buffers"] = config["dslaunch"]["broadcast_buffers"] = true;
    const TemporaryFolder folder;
    CHECK(verify(ranks(2), model, config, folder).code == 65);
}

TEST_CASE("a parameter cut out of a larger storage, a buffer that is a view of another, dropout") {
    const TemporaryFolder models;
    const std::string model = models.path() + "/cut.pt";
    torch::jit::Module module("Cut");
    const at::Tensor whole = wave({10, 80}, 1), all = wave({2, 10}, 2);
    module.register_parameter("w", whole.slice(1, 8, 72).detach().set_requires_grad(true), false);
    module.register_buffer("all", all);
    module.register_buffer("first", all.select(0, 0));
    module.register_attribute("training", c10::BoolType::get(), true);
    module.define(
        "def forward(self, x: Tensor) -> Tensor:\n"
        "    self.all.add_(0.5)\n"
        "    return torch.dropout(torch.linear(x, self.w), 0.5, self.training) * self.first\n");
    module.save(model);
    const TemporaryFolder folder;
    const Verified verified =
        verify(ranks(2), model, fixture_config(fixture_facts("mlp"), 2, 3), folder);
    INFO(verified.out << verified.err);
    CHECK(verified.code == 0);
    CHECK_THAT(verified.out, Catch::Contains("has the same loss and gradients"));
}

TEST_CASE("a reference that lies on a disk finds the same, and only verify takes --scratch") {
    const TemporaryFolder folder;
    std::vector<std::string> where = ranks(2);
    where.insert(where.end(), {"--scratch", folder.path()});
    const Verified verified =
        verify(where, fixture_archive("qwen2"), config_with("qwen2", zero(3)), folder);
    INFO(verified.err);
    CHECK(verified.code == 0);
    CHECK_THAT(verified.out, Catch::Contains("have the same bits"));
    where.back() = folder.path() + "/none";
    const Verified refused =
        verify(where, fixture_archive("gpt"), config_with("gpt", zero(3)), folder);
    CHECK(refused.code == 72);
    CHECK_THAT(refused.err, Catch::Contains("none: cannot create a file there"));
    const TrainResult run =
        train(folder, where, fixture_archive("gpt"), config_with("gpt", zero(3)));
    CHECK(run.code == 64);
}

}  // namespace dslaunch::test
