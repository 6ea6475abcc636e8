// A line through the origin, y = w x from w = 0, with plain gradient descent: the mean of
// (w x - y)^2 has the slope 2 mean((w x - y) x), so that every loss is known in closed form.
#pragma once

#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/jit/api/module.h>

#include <cmath>
#include <fstream>
#include <string>
#include <vector>

#include "dslaunch/engine.h"
#include "support/catch.h"
#include "support/temporary_folder.h"

namespace dslaunch::test {

// Writes line.pt into FOLDER: y = w x with this W at the start.
inline void write_line(const std::string& folder, float w = 0) {
    torch::jit::Module module("Line");
    module.register_parameter("w", at::zeros({1, 1}).fill_(w).set_requires_grad(true), false);
    module.define(
        "def forward(self, x, y):\n    return ((torch.matmul(x, self.w) - y) ** 2).mean()\n");
    module.save(folder + "/line.pt");
}

// Returns options for the model in FOLDER: two micro batches of two rows, without an output.
inline EngineOptions line_options(const std::string& folder, const std::string& more = "") {
    std::ofstream(folder + "/config.json") << R"({
        "train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 2,
        "optimizer": {"type": "SGD", "params": {"lr": 0.125}})"
                                           << more << "}";
    EngineOptions options;
    options.model = folder + "/line.pt";
    options.config = folder + "/config.json";
    options.example = {at::zeros({1, 1}), at::zeros({1, 1})};
    options.keeps_memory = false;
    options.threads = 1;
    return options;
}

// The model and its config in a folder of their own.
struct Line {
    explicit Line(const std::string& more = "") : more_(more) { write_line(folder.path()); }
    [[nodiscard]] EngineOptions options() const { return line_options(folder.path(), more_); }
    TemporaryFolder folder;

  private:
    std::string more_;
};

inline const std::vector<at::Tensor> kRows = {at::tensor({1.0F, 2.0F, 3.0F, 4.0F}).view({4, 1}),
                                              at::tensor({2.0F, 4.0F, 6.0F, 8.0F}).view({4, 1})};

// With y = 2 x and mean(x^2) = 7.5: the loss is 7.5 (w - 2)^2, and w - 2 shrinks by 1 - 0.125 * 15.
constexpr double kFactor = 1 - 0.125 * 15;

// Returns the loss before the update of step STEP, from 1.
inline double line_loss(int64_t step) {
    return 30 * std::pow(kFactor, 2 * static_cast<double>(step - 1));
}

// Returns the exit code of the Error that USE throws, whose message must contain PART.
template <typename Use>
ExitCode code_of(const Use& use, const char* part = "") {
    try {
        use();
    } catch (const Error& error) {
        INFO(error.what());
        CHECK(std::string(error.what()).find(part) != std::string::npos);
        return error.code();
    }
    return ExitCode::kOk;
}

}  // namespace dslaunch::test
