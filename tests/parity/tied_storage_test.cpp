// Models in which several names share memory in different shapes, and buffers that a state_dict
// leaves out. The real programs train, save, resume, export and verify them. The values of eager
// PyTorch are computed here, by autograd over one tensor.
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/conv1d.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/serialization/import.h>

#include "fixture_runs.h"
#include "storage/files/safetensors.h"
#include "support/script_module.h"
#include "support/write_safetensors.h"

namespace dslaunch::test {

using namespace storage;
namespace {

constexpr int64_t kTiedRows = 16, kTiedBatch = 4;

// Returns a module in which names share memory. `t` is `w` transposed, `c` is `w` with one more
// dimension, `frozen` has the elements of `w` but no gradient, and `row` is a row of `w`. `again`
// is `table`, and `first` is a row of `table`; forward changes `table`.
torch::jit::Module tied_module() {
    torch::jit::Module module("Tied");
    module.register_parameter("w", wave({8, 8}, 1).mul(0.3).set_requires_grad(true), false);
    const at::Tensor w = module.attr("w").toTensor().detach();
    module.register_parameter("t", w.t().set_requires_grad(true), false);
    module.register_parameter("c", w.unsqueeze(-1).set_requires_grad(true), false);
    module.register_parameter("frozen", w, false);
    module.register_parameter("bias", wave({8}, 5).set_requires_grad(true), false);
    module.register_buffer("row", w[1]);
    const at::Tensor table = at::zeros({2, 8});
    module.register_buffer("table", table);
    module.register_buffer("first", table[0]);
    module.register_buffer("again", table);
    module.define(
        "def forward(self, x: Tensor, y: Tensor) -> Tensor:\n"
        "    h = torch.tanh(torch.linear(x, self.w, self.bias))\n"
        "    self.table.add_(0.25)\n"
        "    h = torch.tanh(torch.linear(h, self.t))\n"
        "    h = torch.conv1d(h.unsqueeze(-1), self.c).squeeze(-1)\n"
        "    h = torch.linear(h, self.frozen) * self.row + self.first * self.again[1]\n"
        "    return ((h - y) ** 2).mean()\n");
    return module;
}

// Returns a deeper module, for stages and tensor ranks. Its last weight is its first one,
// transposed.
torch::jit::Module chain_module() {
    torch::jit::Module module("Chain");
    module.register_parameter("w", wave({8, 8}, 1).mul(0.3).set_requires_grad(true), false);
    const at::Tensor w = module.attr("w").toTensor().detach();
    for (const char* name : {"m", "n", "o"})
        module.register_parameter(name, wave({8, 8}, *name).set_requires_grad(true), false);
    module.register_parameter("t", w.t().set_requires_grad(true), false);
    module.register_buffer("row", w[1]);
    module.define(
        "def forward(self, x: Tensor, y: Tensor) -> Tensor:\n"
        "    h = torch.linear(x, self.w)\n"
        "    h = torch.tanh(torch.linear(h, self.m))\n"
        "    h = torch.tanh(torch.linear(h, self.n))\n"
        "    h = torch.tanh(torch.linear(h, self.o)) * self.row\n"
        "    return ((torch.linear(h, self.t) - y) ** 2).mean()\n");
    return module;
}

struct Eager {
    std::map<std::string, at::Tensor> weights;
    std::vector<double> losses;

    void add(const std::string& name, const at::Tensor& values) {
        weights[name] = values.clone().set_requires_grad(true);
    }
    [[nodiscard]] const at::Tensor& at(const std::string& name) const { return weights.at(name); }

    void step(const at::Tensor& loss) {
        losses.push_back(loss.item<double>());
        loss.backward();
        const at::NoGradGuard no_grad;
        for (auto& [name, tensor] : weights) {
            tensor.sub_(tensor.grad(), 0.1);
            tensor.mutable_grad().reset();
        }
    }
};

at::Tensor rows_of_step(double start, int64_t step) {
    const int64_t begin = step * kTiedBatch % kTiedRows;
    return wave({kTiedRows, 8}, start).slice(0, begin, begin + kTiedBatch);
}

// Returns the losses and weights of eager PyTorch. The samples of a step are the same for every
// number of ranks. `table` is the same if each rank has one micro batch a step.
Eager eager_tied(int steps) {
    Eager eager;
    eager.add("w", wave({8, 8}, 1).mul(0.3));
    eager.add("bias", wave({8}, 5));
    for (int s = 0; s < steps; ++s) {
        const at::Tensor& w = eager.at("w");
        const at::Tensor still = w.detach();
        const double table = 0.25 * (s + 1);
        at::Tensor h = at::tanh(at::matmul(rows_of_step(11, s), w.t()) + eager.at("bias"));
        h = at::tanh(at::matmul(h, w));
        h = at::conv1d(h.unsqueeze(-1), w.unsqueeze(-1)).squeeze(-1);
        h = at::matmul(h, still.t()) * still[1] + table * table;
        eager.step((h - rows_of_step(12, s)).square().mean());
    }
    return eager;
}

Eager eager_chain(int steps) {
    Eager eager;
    eager.add("w", wave({8, 8}, 1).mul(0.3));
    for (const char* name : {"m", "n", "o"}) eager.add(name, wave({8, 8}, *name));
    for (int s = 0; s < steps; ++s) {
        const at::Tensor& w = eager.at("w");
        at::Tensor h = at::matmul(rows_of_step(11, s), w.t());
        for (const char* name : {"m", "n", "o"}) h = at::tanh(at::matmul(h, eager.at(name).t()));
        h = at::matmul(h * w.detach()[1], w);
        eager.step((h - rows_of_step(12, s)).square().mean());
    }
    return eager;
}

Json tied_config(const TemporaryFolder& folder, int ranks, int steps, const Json& changes) {
    const at::Tensor x = wave({kTiedRows, 8}, 11), y = wave({kTiedRows, 8}, 12);
    const auto bytes = [](const at::Tensor& tensor) {
        return std::as_bytes(std::span(tensor.const_data_ptr<float>(), kTiedRows * 8));
    };
    write_safetensors(folder.path() + "/rows.safetensors",
                      std::vector<SafetensorsEntry>{{"x", DType::kF32, {kTiedRows, 8}, bytes(x)},
                                                    {"y", DType::kF32, {kTiedRows, 8}, bytes(y)}});
    Json config = {
        {"train_batch_size", kTiedBatch},
        {"train_micro_batch_size_per_gpu", kTiedBatch / ranks},
        {"optimizer", {{"type", "SGD"}, {"params", {{"lr", 0.1}}}}},
        {"dslaunch",
         {{"steps", steps},
          {"data", {{"train", folder.path() + "/rows.safetensors"}, {"shuffle", false}}}}}};
    config.merge_patch(changes);
    return config;
}

void check_tied_losses(const std::vector<double>& found, const std::vector<double>& expected) {
    REQUIRE(found.size() == expected.size());
    for (size_t s = 0; s < found.size(); ++s)
        CHECK(found[s] == Approx(expected[s]).epsilon(1e-4).margin(1e-5));
}

at::Tensor stored_tensor(const SafetensorsFile& file, const std::string& name) {
    for (const SafetensorsEntry& entry : file.entries())
        if (entry.name == name)
            return at::from_blob(const_cast<std::byte*>(entry.bytes.data()), entry.shape,
                                 at::kFloat)
                .clone();
    FAIL("no tensor " << name);
    return {};
}

// Checks that the file at PATH has the names of ALL, each with its shape and value.
void check_file(const std::string& path, const NamedTensors& all) {
    const SafetensorsFile file(path);
    CHECK(file.entries().size() == all.size());
    for (const auto& [name, expected] : all) {
        const at::Tensor found = stored_tensor(file, name);
        INFO(path << " " << name << " " << found.sizes());
        CHECK(found.sizes() == expected.sizes());
        CHECK(at::allclose(found, expected, 1e-3, 1e-5));
    }
}

void check_tied(const std::string& path, const Eager& eager, int steps) {
    const at::Tensor w = eager.at("w").detach();
    const at::Tensor table = at::zeros({2, 8}).add(0.25 * steps);
    check_file(path, {{"w", w},
                      {"t", w.t()},
                      {"c", w.unsqueeze(-1)},
                      {"frozen", w},
                      {"row", w[1]},
                      {"bias", eager.at("bias").detach()},
                      {"first", table[0]},
                      {"table", table},
                      {"again", table}});
}

// Checks that names of the model that share memory still do so in the archive at PATH, as PyTorch
// loads it.
void check_archive(const std::string& path) {
    const torch::jit::Module module = torch::jit::load(path);
    const auto data = [&](const char* name) {
        return static_cast<const float*>(module.attr(name).toTensor().const_data_ptr());
    };
    for (const char* name : {"t", "c", "frozen"}) CHECK(data(name) == data("w"));
    CHECK(data("row") == data("w") + 8);
    CHECK(data("first") == data("table"));
    CHECK(data("again") == data("table"));
    CHECK(module.attr("t").toTensor().stride(0) == 1);
}

struct RanksOf {
    int ranks;
    Json changes;
};

Json of_zero_stage(int stage) {
    return {{"zero_optimization", {{"stage", stage}}}};
}

}  // namespace

TEST_CASE("names that share memory in other shapes train as one at every stage of ZeRO") {
    const Eager eager = eager_tied(3);
    for (const RanksOf& shape : std::vector<RanksOf>{{1, of_zero_stage(0)},
                                                     {2, of_zero_stage(0)},
                                                     {2, of_zero_stage(1)},
                                                     {2, of_zero_stage(2)},
                                                     {2, of_zero_stage(3)}}) {
        const TemporaryFolder folder;
        const std::string archive = folder.path() + "/tied.pt";
        tied_module().save(archive);
        const Json config = tied_config(folder, shape.ranks, 3, shape.changes);
        const TrainResult result = train(folder, ranks(shape.ranks), archive, config);
        INFO(config.dump() << "\n" << result.err);
        REQUIRE(result.code == 0);
        check_tied_losses(result.losses(), eager.losses);
        check_tied(folder.path() + "/out/model.safetensors", eager, 3);
        check_archive(folder.path() + "/out/model.pt");
    }
}

TEST_CASE("they do over the stages of a pipeline and over tensor ranks") {
    const Eager eager = eager_chain(3);
    const at::Tensor w = eager.at("w").detach();
    for (const Json& own : {Json{{"pipeline", {{"stages", 2}}}}, Json{{"tensor", {{"size", 2}}}}}) {
        const TemporaryFolder folder;
        const std::string archive = folder.path() + "/chain.pt";
        chain_module().save(archive);
        const Json config =
            tied_config(folder, 1, 3, {{"train_micro_batch_size_per_gpu", 2}, {"dslaunch", own}});
        const TrainResult result = train(folder, ranks(2), archive, config);
        INFO(config.dump() << "\n" << result.err);
        REQUIRE(result.code == 0);
        check_tied_losses(result.losses(), eager.losses);
        check_file(folder.path() + "/out/model.safetensors", {{"w", w},
                                                              {"t", w.t()},
                                                              {"row", w[1]},
                                                              {"m", eager.at("m").detach()},
                                                              {"n", eager.at("n").detach()},
                                                              {"o", eager.at("o").detach()}});
    }
}

TEST_CASE("tied names are saved once, resumed at another shape, and exported under every name") {
    const TemporaryFolder folder;
    const std::string archive = folder.path() + "/tied.pt";
    tied_module().save(archive);
    const TrainResult first =
        train(folder, ranks(2), archive, tied_config(folder, 2, 2, of_zero_stage(3)));
    INFO(first.err);
    REQUIRE(first.code == 0);
    std::vector<std::string> where = ranks(1);
    where.emplace_back("--resume");
    const TrainResult second =
        train(folder, where, archive, tied_config(folder, 1, 4, of_zero_stage(0)));
    INFO(second.err);
    REQUIRE(second.code == 0);
    const Eager eager = eager_tied(4);
    check_tied_losses(second.losses(), eager.losses);
    const auto run = [&](std::vector<std::string> words) {
        words.insert(words.begin(), {kDslaunch, "ckpt"});
        JobProcess process(folder, words);
        const int code = process.wait();
        INFO(process.err());
        CHECK(code == 0);
    };
    run({"export", folder.path() + "/out", folder.path() + "/exported"});
    check_tied(folder.path() + "/exported/model.safetensors", eager, 4);
    run({"export", folder.path() + "/out", folder.path() + "/exported.pt", "--format",
         "torchscript", "--model", archive});
    check_archive(folder.path() + "/exported.pt");
    run({"diff", folder.path() + "/out", folder.path() + "/exported/model.safetensors"});
    // The model's own state_dict contains each name. It is accepted if the values of names that
    // share memory agree.
    run({"import", folder.path() + "/exported/model.safetensors", folder.path() + "/imported"});
    const auto resume = [&] {
        std::vector<std::string> from = ranks(2);
        from.insert(from.end(), {"--resume=" + folder.path() + "/imported"});
        return train(folder, from, archive, tied_config(folder, 2, 1, of_zero_stage(2)));
    };
    std::filesystem::remove_all(folder.path() + "/out");
    const TrainResult imported = resume();
    INFO(imported.err);
    CHECK(imported.code == 0);
    const std::vector<float> other(64, 0.5F);
    const SafetensorsFile file(folder.path() + "/exported/model.safetensors");
    std::vector<SafetensorsEntry> entries(file.entries().begin(), file.entries().end());
    for (SafetensorsEntry& entry : entries)
        if (entry.name == "t") entry.bytes = std::as_bytes(std::span(other));
    write_safetensors(folder.path() + "/untied.safetensors", entries);
    std::filesystem::remove_all(folder.path() + "/imported");
    std::filesystem::remove_all(folder.path() + "/out");
    run({"import", folder.path() + "/untied.safetensors", folder.path() + "/imported"});
    const TrainResult untied = resume();
    CHECK(untied.code == 73);
    CHECK_THAT(untied.err, Catch::Contains("are one tensor in the model"));
}

TEST_CASE("verify compares with the archive as PyTorch loads it, where names share memory") {
    for (const RanksOf& shape : {RanksOf{1, of_zero_stage(0)}, RanksOf{2, of_zero_stage(3)}}) {
        const TemporaryFolder folder;
        const std::string archive = folder.path() + "/tied.pt";
        tied_module().save(archive);
        const std::string config = folder.path() + "/config.json";
        write_file(config, tied_config(folder, shape.ranks, 2, shape.changes).dump());
        JobProcess process(folder, {kDslaunch, "verify", "--num_gpus", std::to_string(shape.ranks),
                                    "--device", "cpu", "--config", config, archive});
        const int code = process.wait();
        INFO(process.out() << process.err());
        CHECK(code == 0);
    }
}

TEST_CASE("a buffer under two names is saved by two ranks, and the run ends well") {
    const TemporaryFolder folder;
    const std::string archive = folder.path() + "/tied.pt";
    tied_module().save(archive);
    Json config = tied_config(folder, 2, 4, of_zero_stage(0));
    config["dslaunch"]["save"] = {{"interval", 2}};
    const TrainResult whole = train(folder, ranks(2), archive, config);
    INFO(whole.err);
    REQUIRE(whole.code == 0);
    std::vector<std::string> where = ranks(2);
    where.insert(where.end(), {"--resume=" + folder.path() + "/out/checkpoints/step-2"});
    const TrainResult resumed = train(folder, where, archive, config);
    INFO(resumed.err);
    REQUIRE(resumed.code == 0);
    // The resumed job has appended the losses of steps 3 and 4 to the first run's.
    const std::vector<double> first = whole.losses(), both = resumed.losses();
    REQUIRE(both.size() == 6);
    CHECK(std::vector(both.begin() + 4, both.end()) == std::vector(first.begin() + 2, first.end()));
}

TEST_CASE("buffers that TorchScript's archive has and a state_dict lacks stay as in the archive") {
    const TemporaryFolder folder;
    const std::string archive = folder.path() + "/rotary.pt";
    script_module(
        "def forward(self, x: Tensor, y: Tensor) -> Tensor:\n"
        "    return ((torch.linear(x, self.w) * self.inv_freq * self.keep - y) ** 2).mean()\n",
        {{"w", wave({8, 8}, 1)}}, {{"inv_freq", ramp(8)}, {"keep", ramp(8)}})
        .save(archive);
    const at::Tensor w = wave({8, 8}, 1), keep = ramp(8);
    const auto bytes = [](const at::Tensor& tensor) {
        return std::as_bytes(
            std::span(tensor.const_data_ptr<float>(), static_cast<size_t>(tensor.numel())));
    };
    write_safetensors(folder.path() + "/state.safetensors",
                      std::vector<SafetensorsEntry>{{"w", DType::kF32, {8, 8}, bytes(w)},
                                                    {"keep", DType::kF32, {8}, bytes(keep)}});
    const TrainResult direct =
        train(folder, ranks(2), archive, tied_config(folder, 2, 2, Json::object()));
    REQUIRE(direct.code == 0);
    std::filesystem::remove_all(folder.path() + "/out");
    JobProcess import(folder, {kDslaunch, "ckpt", "import", folder.path() + "/state.safetensors",
                               folder.path() + "/out"});
    REQUIRE(import.wait() == 0);
    std::vector<std::string> where = ranks(2);
    where.emplace_back("--resume");
    const TrainResult resumed =
        train(folder, where, archive, tied_config(folder, 2, 2, Json::object()));
    INFO(resumed.err);
    REQUIRE(resumed.code == 0);
    CHECK(resumed.losses() == direct.losses());
    CHECK_THAT(resumed.err, Catch::Contains("the checkpoint has no buffer inv_freq"));
    const SafetensorsFile written(folder.path() + "/out/model.safetensors");
    CHECK(written.entries().size() == 2);
}

}  // namespace dslaunch::test
