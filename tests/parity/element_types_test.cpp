// Parameters and buffers of types that no optimizer here updates, through the real dslaunch: SGD
// has the losses of eager LibTorch, a job is resumed, and weights of these types are written.
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/mse_loss.h>
#include <ATen/ops/view_as_complex.h>
#include <ATen/ops/view_as_real.h>
#include <c10/core/ScalarType.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/serialization/import.h>

#include <filesystem>
#include <functional>

#include "support/catch.h"
#include "support/places.h"
#include "support/script_module.h"
#include "support/temporary_folder.h"
#include "support/train_job.h"
#include "support/write_safetensors.h"

namespace dslaunch::test {
namespace {

constexpr double kTypeLr = 0.1;
constexpr int64_t kTypeRows = 8, kTypeSteps = 4;

struct TypeRows {
    at::Tensor x = wave({kTypeRows, 4}, 0.0);
    at::Tensor y = wave({kTypeRows, 4}, 1.0);

    void write(const std::string& path) const {
        const auto entry = [](const std::string& name, const at::Tensor& tensor) {
            return storage::SafetensorsEntry{
                name,
                DType::kF32,
                tensor.sizes().vec(),
                {static_cast<const std::byte*>(tensor.const_data_ptr()), tensor.nbytes()}};
        };
        write_safetensors(path, std::vector{entry("x", x), entry("y", y)});
    }
};

// Multiplies pairs of numbers by TABLE as complex numbers, as rotary positions do.
at::Tensor turned_by(const at::Tensor& h, const at::Tensor& table) {
    return at::view_as_real(at::view_as_complex(h.reshape({-1, 2, 2})) * table).flatten(1);
}

struct TypeKind {
    const char* name;
    at::Tensor table;
    const char* body;  // code of forward, after h = x @ w
    std::function<at::Tensor(const at::Tensor& h, const at::Tensor& table)> output;
    const char* stored;  // dtype of the table in safetensors
};

std::vector<TypeKind> type_kinds() {
    const char* const turn =
        "    z = torch.view_as_complex(h.reshape([-1, 2, 2])) * self.table\n"
        "    o = torch.view_as_real(z).flatten(1)\n";
    const char* const scale = "    o = (h * self.table).float()\n";
    const auto scaled = [](const at::Tensor& h, const at::Tensor& table) {
        return (h * table).to(at::kFloat);
    };
    const at::Tensor complex = at::view_as_complex(wave({2, 2}, 0.3));
    return {{"complex64", complex, turn, turned_by, "C64"},
            {"int64", at::arange(1, 5, at::kLong), scale, scaled, "I64"},
            {"float64", at::arange(1, 5, at::kDouble) / 4, scale, scaled, "F64"},
            {"bool", at::arange(4, at::kLong).gt(1), scale, scaled, "BOOL"}};
}

enum class TypePlace { kParameter, kBuffer };

torch::jit::Module typed_module(const TypeKind& kind, TypePlace place, bool trained = false) {
    torch::jit::Module module("Scripted");
    module.register_parameter("w", wave({4, 4}, 2.0).set_requires_grad(true), /*is_buffer=*/false);
    const at::Tensor table = kind.table.clone();
    if (trained) table.set_requires_grad(true);
    if (place == TypePlace::kParameter) {
        module.register_parameter("table", table, /*is_buffer=*/false);
    } else {
        module.register_buffer("table", table);
    }
    module.define(std::string("def forward(self, x: Tensor, y: Tensor) -> Tensor:\n"
                              "    h = x @ self.w\n") +
                  kind.body + "    return torch.mse_loss(o, y)\n");
    return module;
}

std::vector<double> typed_losses(const TypeKind& kind, at::Tensor& w) {
    const TypeRows rows;
    w = wave({4, 4}, 2.0).set_requires_grad(true);
    std::vector<double> losses;
    for (int64_t step = 0; step < kTypeSteps; ++step) {
        const at::Tensor loss =
            at::mse_loss(kind.output(at::matmul(rows.x, w), kind.table), rows.y);
        losses.push_back(loss.item<double>());
        torch::autograd::backward({loss});
        const at::NoGradGuard no_grad;
        w.sub_(w.grad(), kTypeLr);
        w.mutable_grad().reset();
    }
    return losses;
}

Json types_config(const TemporaryFolder& folder, int stage) {
    const std::string rows = folder.path() + "/rows.safetensors";
    TypeRows().write(rows);
    Json config = {{"train_batch_size", kTypeRows},
                   {"optimizer", {{"type", "SGD"}, {"params", {{"lr", kTypeLr}}}}},
                   {"zero_optimization", {{"stage", stage}}}};
    config["dslaunch"] = {{"steps", kTypeSteps},
                          {"save", {{"interval", 2}}},
                          {"data", {{"train", rows}, {"shuffle", false}}}};
    return config;
}

const storage::SafetensorsEntry& table_entry(const storage::SafetensorsFile& file) {
    const storage::SafetensorsEntry* const entry = file.find("table");
    REQUIRE(entry != nullptr);
    return *entry;
}

void check_typed_weights(const std::string& out, const TypeKind& kind, const at::Tensor& w) {
    const storage::SafetensorsFile file(out + "/model.safetensors");
    const storage::SafetensorsEntry& entry = table_entry(file);
    CHECK(dtype_name(entry.dtype) == kind.stored);
    CHECK(entry.shape == kind.table.sizes().vec());
    REQUIRE(entry.bytes.size() == kind.table.nbytes());
    CHECK(std::memcmp(entry.bytes.data(), kind.table.const_data_ptr(), entry.bytes.size()) == 0);
    const torch::jit::Module loaded = torch::jit::load(out + "/model.pt");
    const at::Tensor table = loaded.attr("table").toTensor();
    CHECK(table.scalar_type() == kind.table.scalar_type());
    CHECK(at::equal(table, kind.table));
    CHECK(at::allclose(loaded.attr("w").toTensor(), w.detach(), 1e-5, 1e-6));
}

TEST_CASE("frozen parameters and buffers of other types stay what they are") {
    for (const TypeKind& kind : type_kinds()) {
        at::Tensor w;
        const std::vector<double> losses = typed_losses(kind, w);
        for (const TypePlace place : {TypePlace::kParameter, TypePlace::kBuffer})
            for (const auto& [ranks, stage] : {std::pair{2, 3}}) {
                INFO(kind.name << (place == TypePlace::kBuffer ? " buffer, " : " parameter, ")
                               << ranks << " ranks");
                const TemporaryFolder folder;
                const std::string model = folder.path() + "/model.pt";
                typed_module(kind, place).save(model);
                Json config = types_config(folder, stage);
                const std::vector<std::string> where = {"--num_gpus", std::to_string(ranks)};
                const TrainResult result = train(folder, where, model, config);
                INFO(result.err);
                REQUIRE(result.code == 0);
                REQUIRE(result.losses().size() == losses.size());
                // Each of two ranks computes half of a mean of 32 numbers. Adding the two halves
                // makes an error of up to 1e-5.
                for (size_t i = 0; i < losses.size(); ++i)
                    CHECK(result.losses()[i] == Approx(losses[i]).epsilon(1e-5));
                check_typed_weights(folder.path() + "/out", kind, w);
                // Trains the last two steps again, from the checkpoint of step 2.
                std::filesystem::remove_all(folder.path() + "/out/checkpoints/step-4");
                std::vector<std::string> again = where;
                again.push_back("--resume");
                const TrainResult resumed = train(folder, again, model, config);
                INFO(resumed.err);
                CHECK(resumed.code == 0);
                check_typed_weights(folder.path() + "/out", kind, w);
            }
    }
}

TEST_CASE("types that cannot be trained or saved are refused before a step") {
    TypeKind wide = type_kinds()[0];
    wide.table = wide.table.to(at::kComplexDouble);
    const std::tuple<TypeKind, TypePlace, bool, const char*> rows[] = {
        {type_kinds()[0], TypePlace::kParameter, true,
         "parameter table is ComplexFloat, a type that cannot be trained here: store the "
         "torch.view_as_real"},
        {type_kinds()[2], TypePlace::kParameter, true,
         "parameter table is Double, a type that cannot be trained here: save the model with "
         ".float()"},
        {wide, TypePlace::kParameter, false,
         "table has the type ComplexDouble, which neither safetensors files nor checkpoints can "
         "store"},
        {wide, TypePlace::kBuffer, false,
         "table has the type ComplexDouble, which neither safetensors files nor checkpoints can "
         "store"}};
    for (const auto& [kind, place, trained, words] : rows) {
        INFO(words);
        const TemporaryFolder folder;
        const std::string model = folder.path() + "/model.pt";
        typed_module(kind, place, trained).save(model);
        const TrainResult result =
            train(folder, {"--num_gpus", "1"}, model, types_config(folder, 0));
        CHECK(result.code == 66);
        CHECK_THAT(result.err, Catch::Contains(words));
        CHECK(result.losses().empty());
    }
}

// Tests the real form that the refusal names. It contains the numbers of the complex parameter, and
// PyTorch's optimizers update real and imaginary parts as separate numbers too.
TEST_CASE("a complex parameter trains as its real view") {
    const TypeKind kind = {"real view", wave({2, 2}, 0.3),
                           "    z = torch.view_as_complex(h.reshape([-1, 2, 2])) * "
                           "torch.view_as_complex(self.table)\n"
                           "    o = torch.view_as_real(z).flatten(1)\n",
                           turned_by, "F32"};
    const TypeRows rows;
    at::Tensor w = wave({4, 4}, 2.0).set_requires_grad(true);
    at::Tensor table = at::view_as_complex(kind.table.clone()).clone().set_requires_grad(true);
    std::vector<double> losses;
    for (int64_t step = 0; step < kTypeSteps; ++step) {
        const at::Tensor loss = at::mse_loss(turned_by(at::matmul(rows.x, w), table), rows.y);
        losses.push_back(loss.item<double>());
        torch::autograd::backward({loss});
        const at::NoGradGuard no_grad;
        for (at::Tensor* const parameter : {&w, &table}) {
            parameter->sub_(parameter->grad(), kTypeLr);
            parameter->mutable_grad().reset();
        }
    }
    const TemporaryFolder folder;
    const std::string model = folder.path() + "/model.pt";
    typed_module(kind, TypePlace::kParameter, /*trained=*/true).save(model);
    const TrainResult result = train(folder, {"--num_gpus", "2"}, model, types_config(folder, 3));
    INFO(result.err);
    REQUIRE(result.code == 0);
    REQUIRE(result.losses().size() == losses.size());
    for (size_t i = 0; i < losses.size(); ++i)
        CHECK(result.losses()[i] == Approx(losses[i]).epsilon(1e-5));
}

TEST_CASE("weights of 16 bits say in which type a silent config trains, or how to ask for it") {
    for (const bool is_half : {true, false}) {
        INFO((is_half ? "half of the elements" : "a third of the elements"));
        torch::jit::Module module("Scripted");
        const auto weight = [&](const char* name, double phase, at::ScalarType type) {
            module.register_parameter(name, wave({4, 4}, phase).to(type).set_requires_grad(true),
                                      /*is_buffer=*/false);
        };
        weight("narrow", 0.5, at::kBFloat16);
        weight("wide", 2.0, at::kFloat);
        if (!is_half) weight("last", 1.0, at::kFloat);
        module.define(std::string("def forward(self, x: Tensor, y: Tensor) -> Tensor:\n"
                                  "    h = (x.to(15) @ self.narrow).float()\n"
                                  "    o = (h @ self.wide)") +
                      (is_half ? "\n" : " @ self.last\n") +
                      "    return torch.mse_loss(o.float(), y)\n");
        const TemporaryFolder folder;
        const std::string model = folder.path() + "/model.pt";
        module.save(model);
        Json config = types_config(folder, 0);
        const TrainResult silent = train(folder, {"--num_gpus", "1"}, model, config);
        INFO(silent.err);
        CHECK(silent.code == (is_half ? 0 : 66));
        CHECK_THAT(silent.err, Catch::Contains(is_half ? "they are trained in bf16"
                                                       : "set bf16.enabled to true (--bf16)"));
        // With the setting that the message names, the model trains.
        config["bf16"] = {{"enabled", true}};
        std::filesystem::remove_all(folder.path() + "/out");
        CHECK(train(folder, {"--num_gpus", "1"}, model, config).code == 0);
    }
}

}  // namespace
}  // namespace dslaunch::test
