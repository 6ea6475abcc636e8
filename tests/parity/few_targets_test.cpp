// Steps with few targets, compared with transformers and eager LibTorch. The loss is one mean over
// the targets of the global batch; micro batches without targets have no weight in it.
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/jit/api/module.h>

#include <span>

#include "support/catch.h"
#include "support/places.h"
#include "support/script_module.h"
#include "support/temporary_folder.h"
#include "support/train_job.h"
#include "support/write_safetensors.h"

namespace dslaunch::test {
namespace {

// few_targets_reference.py has the same numbers.
constexpr int64_t kTargetRows = 32, kTargetLength = 6, kTargetStepRows = 8, kTargetVocabulary = 61;

int64_t token_at(int64_t row, int64_t place) {
    return (7 * row + 3 * place * place) % kTargetVocabulary;
}

bool is_target(int64_t row, int64_t place) {
    if (row < 2 || (16 <= row && row < 24)) return false;
    return row != 4 || place < 2;
}

struct TargetRows {
    at::Tensor tokens = at::empty({kTargetRows, kTargetLength}, at::kLong);
    at::Tensor targets = at::empty({kTargetRows, kTargetLength}, at::kLong);

    TargetRows() {
        for (int64_t row = 0; row < kTargetRows; ++row)
            for (int64_t place = 0; place < kTargetLength; ++place) {
                tokens[row][place] = token_at(row, place);
                targets[row][place] = is_target(row, place) ? token_at(row, place + 1) : -100;
            }
    }
    void write(const std::string& path) const {
        const auto entry = [](const std::string& name, const at::Tensor& tensor) {
            return storage::SafetensorsEntry{
                name,
                DType::kI64,
                tensor.sizes().vec(),
                {static_cast<const std::byte*>(tensor.const_data_ptr()), tensor.nbytes()}};
        };
        write_safetensors(path, std::vector{entry("tokens", tokens), entry("targets", targets)});
    }
};

struct TargetCase {
    const char* name;
    int ranks = 1;
    int64_t accumulation = 1;
    Json also = Json::object();  // merged into the config
};

Json targets_config(const TargetCase& one, const std::string& rows, double lr) {
    Json config = {{"train_batch_size", kTargetStepRows},
                   {"gradient_accumulation_steps", one.accumulation},
                   {"gradient_clipping", 1e9},
                   {"optimizer", {{"type", "SGD"}, {"params", {{"lr", lr}}}}}};
    config["dslaunch"] = {{"steps", kTargetRows / kTargetStepRows},
                          {"data", {{"train", rows}, {"shuffle", false}}}};
    config.merge_patch(one.also);
    return config;
}

TrainResult train_on_targets(const TemporaryFolder& folder, const TargetCase& one,
                             const std::string& model, double lr) {
    const std::string rows = folder.path() + "/rows.safetensors";
    TargetRows().write(rows);
    TrainResult result = train(folder, {"--num_gpus", std::to_string(one.ranks)}, model,
                               targets_config(one, rows, lr));
    INFO(one.name << "\n" << result.err);
    REQUIRE(result.code == 0);
    return result;
}

// Checks with a tolerance of 2e-5. The losses are near 4.4, in fp32 over two layers, and
// transformers adds in another order.
void check_target_losses(const std::vector<double>& found, const std::vector<double>& expected) {
    REQUIRE(found.size() == expected.size());
    for (size_t i = 0; i < found.size(); ++i) CHECK(found[i] == Approx(expected[i]).epsilon(2e-5));
}

TEST_CASE("a folder's loss is one mean over the targets of the global batch") {
    const Json reference = Json::parse(
        content_of(std::string(source_dir()) + "/tests/parity/few_targets_reference.json"));
    const std::string held = "/rows.safetensors";
    const TargetCase cases[] = {
        {"one micro batch", 1, 1},
        {"four micro batches", 1, 4},
        {"ZeRO 1", 2, 2, {{"zero_optimization", {{"stage", 1}}}}},
        {"ZeRO 2, an empty rank", 4, 1, {{"zero_optimization", {{"stage", 2}}}}},
        {"ZeRO 3", 2, 2, {{"zero_optimization", {{"stage", 3}}}}},
        {"a pipeline", 2, 4, {{"dslaunch", {{"pipeline", {{"stages", 2}}}}}}},
        {"tensor ranks", 2, 4, {{"dslaunch", {{"tensor", {{"size", 2}}}}}}},
        {"shared positions", 2, 2, {{"dslaunch", {{"sequence", {{"size", 2}}}}}}},
        {"the loss by name", 2, 2, {{"dslaunch", {{"loss", {{"name", "cross_entropy"}}}}}}}};
    for (TargetCase one : cases) {
        const TemporaryFolder folder;
        one.also["dslaunch"]["data"]["eval"] = folder.path() + held;
        one.also["dslaunch"]["eval_interval"] = 4;
        const TrainResult result =
            train_on_targets(folder, one, fixture_path("huggingface/llama"), /*lr=*/0.5);
        INFO(one.name << "\n" << result.err);
        check_target_losses(result.losses(), reference.at("losses"));
        check_target_losses(result.values_of("eval_loss"), reference.at("held_out"));
        for (size_t step = 0; step < 4; ++step)
            CHECK(result.metrics[step + 1].at("grad_norm").get<double>() ==
                  Approx(reference.at("norms")[step].get<double>()).epsilon(1e-4));
        CHECK_THAT(result.err, Catch::Contains("as in transformers' Trainer"));
        CHECK_THAT(result.err,
                   Catch::Contains("step 3: all targets of the global batch are ignored"));
    }
}

// A model that is a table of logits, with one row for each token.
constexpr const char* kTargetTable =
    "def forward(self, tokens: Tensor, targets: Tensor) -> Tensor:\n"
    "    rows = torch.embedding(self.table, tokens)\n";
constexpr const char* kOwnCrossEntropy =
    "    return torch.cross_entropy_loss(rows.flatten(0, 1), targets.reshape([-1]))\n";
constexpr const char* kOwnQuotient =
    "    counts = (targets != -100).float()\n"
    "    each = torch.cross_entropy_loss(rows.flatten(0, 1), targets.flatten(), None, 0)\n"
    "    return (each * counts.flatten()).sum() / counts.sum()\n";

enum class TargetMean { kTokens, kMicroBatches };

// Returns the losses of SGD on TABLE with BATCHES micro batches a step, computed by eager LibTorch.
std::vector<double> table_losses(at::Tensor table, TargetMean mean, int64_t batches, double lr) {
    const TargetRows rows;
    table = table.clone().set_requires_grad(true);
    std::vector<double> losses;
    const int64_t micro_rows = kTargetStepRows / batches;
    for (int64_t step = 0; step < kTargetRows / kTargetStepRows; ++step) {
        std::vector<at::Tensor> sums;
        std::vector<int64_t> counts;
        for (int64_t m = 0; m < batches; ++m) {
            const int64_t first = step * kTargetStepRows + m * micro_rows;
            const at::Tensor labels = rows.targets.narrow(0, first, micro_rows).flatten();
            const int64_t count = labels.ne(-100).sum().item<int64_t>();
            if (count == 0) continue;
            const at::Tensor logits =
                at::embedding(table, rows.tokens.narrow(0, first, micro_rows)).flatten(0, 1);
            sums.push_back(at::cross_entropy_loss(logits, labels, {}, at::Reduction::Sum));
            counts.push_back(count);
        }
        losses.push_back(0);
        if (sums.empty()) continue;
        int64_t all = 0;
        for (const int64_t count : counts) all += count;
        at::Tensor loss = at::zeros({});
        for (size_t i = 0; i < sums.size(); ++i)
            loss = loss + sums[i] / static_cast<double>(mean == TargetMean::kTokens
                                                            ? all
                                                            : counts[i] * std::ssize(counts));
        losses.back() = loss.item<double>();
        torch::autograd::backward({loss});
        const at::NoGradGuard no_grad;
        table.sub_(table.grad(), lr);
        table.mutable_grad().reset();
    }
    return losses;
}

TEST_CASE("micro batches without a target count for nothing, whoever computes the loss") {
    const at::Tensor table = wave({kTargetVocabulary, kTargetVocabulary}, 0.5);
    const Json by_token = {{"dslaunch", {{"loss", {{"mean", "token"}}}}}};
    const Json named = {{"dslaunch", {{"loss", {{"name", "cross_entropy"}}}}}};
    const std::string logits =
        std::string(kTargetTable)
            .replace(std::string(kTargetTable).find(", targets: Tensor"), 17, "") +
        "    return rows\n";
    const std::tuple<const char*, std::string, Json> models[] = {
        {"its own cross entropy", std::string(kTargetTable) + kOwnCrossEntropy, Json::object()},
        {"its own quotient", std::string(kTargetTable) + kOwnQuotient, Json::object()},
        {"a named loss", logits, named}};
    for (const auto& [name, text, also] : models)
        for (const TargetMean mean : {TargetMean::kMicroBatches, TargetMean::kTokens})
            for (TargetCase one :
                 {TargetCase{name, 2, 2},
                  TargetCase{name, 4, 1, {{"zero_optimization", {{"stage", 3}}}}}}) {
                const TemporaryFolder folder;
                const std::string model = folder.path() + "/table.pt";
                script_module(text, {{"table", table}}).save(model);
                one.also.merge_patch(also);
                if (mean == TargetMean::kTokens) one.also.merge_patch(by_token);
                const TrainResult result = train_on_targets(folder, one, model, /*lr=*/2.0);
                INFO(name << (mean == TargetMean::kTokens ? ", by token, " : ", ") << one.ranks
                          << " ranks\n"
                          << result.err);
                check_target_losses(result.losses(), table_losses(table, mean, 4, 2.0));
                CHECK_THAT(result.err,
                           Catch::Contains("step 1: all targets are ignored in 1 micro batch"));
            }
}

}  // namespace
}  // namespace dslaunch::test
