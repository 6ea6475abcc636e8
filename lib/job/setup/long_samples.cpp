#include "job/setup/long_samples.h"

#include <ATen/core/Tensor.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <optional>

#include "base/error.h"
#include "base/log.h"
#include "base/machine/memory_limits.h"
#include "base/text.h"
#include "base/text/words.h"
#include "graph/lowered/lowered_graph.h"
#include "graph/models/text_model.h"
#include "plan/predict/longer_pass.h"

namespace dslaunch::job {

namespace {

bool are_rows(const JobSetup& setup) {
    return setup.data && setup.data->train.tokens_per_sample() == 0;
}

// Returns a name for the samples in messages: the file of rows, or the option --context.
std::string samples_name(const JobSetup& setup, int64_t tokens) {
    return are_rows(setup) ? printable(setup.data->train.path())
                           : fmt::format("--context {}", tokens);
}

using Seconds = std::chrono::duration<double>;

// Returns the size of BATCH if all its tensors are [rows, tokens], as in language models, and
// samples of any length can be made of them; otherwise nothing.
std::optional<plan::PassSize> size_of(const JobSetup& setup,
                                      const std::vector<c10::IValue>& batch) {
    std::optional<plan::PassSize> size;
    for (const c10::IValue& value : batch) {
        if (!value.isTensor() || value.toTensor().dim() != 2) return std::nullopt;
        const at::Tensor& tensor = value.toTensor();
        if (size && (size->rows != tensor.size(0) || size->tokens != tensor.size(1)))
            return std::nullopt;
        size = {tensor.size(0), tensor.size(1)};
    }
    const auto is_fixed = [](const auto& argument) {
        return std::ranges::any_of(argument.second, [](int64_t extent) { return extent >= 0; });
    };
    if (std::ranges::any_of(setup.model->argument_sizes(), is_fixed)) return std::nullopt;
    return size;
}

// Returns the first TOKENS tokens of the first sample of BATCH.
std::vector<c10::IValue> begin_of(const std::vector<c10::IValue>& batch, int64_t tokens) {
    std::vector<c10::IValue> begin;
    for (const c10::IValue& value : batch)
        begin.emplace_back(value.toTensor().narrow(0, 0, 1).narrow(1, 0, tokens).contiguous());
    return begin;
}

// Returns true for a batch so small that it is run without asking how long that takes.
bool is_small(const JobSetup& setup, plan::PassSize size) {
    constexpr int64_t kTokens = 2048;
    constexpr double kProducts = 2e11;  // a few seconds on two processors
    double numel = 0;
    for (const graph::ModelParameter& parameter : setup.model->parameters())
        numel += static_cast<double>(parameter.tensor.numel());
    const int64_t tokens = size.rows * size.tokens;
    return tokens <= kTokens &&
           (setup.shapes_only || numel * static_cast<double>(tokens) <= kProducts);
}

// Passes over the begin of a sample, each twice as long as the one before.
class GrowingPasses {
  public:
    GrowingPasses(const std::vector<c10::IValue>& batch, plan::PassSize whole,
                  const MeasureBatch& measure)
        : batch_(batch), whole_(whole), measure_(measure) {}

    // Runs passes until their cost shows that the whole batch can be run, or until a longer one
    // would take too much time or memory.
    void run() {
        for (int64_t tokens = kTokensMin; 2 * tokens <= whole_.tokens; tokens *= 2) {
            if (passes_.size() >= kPassesMin && !may_run(tokens)) return;
            const auto begin = std::chrono::steady_clock::now();
            plan::ModelInfo info = measure_(begin_of(batch_, tokens));
            const Seconds took = std::chrono::steady_clock::now() - begin;
            spent_s_ += took.count();
            passes_.push_back({tokens, took.count(), std::move(info)});
            if (can_run_whole()) return;
        }
    }

    // Returns true unless a pass over the whole batch would take too much time or memory.
    [[nodiscard]] bool can_run_whole() const {
        constexpr double kWholeMaxS = 30;
        if (passes_.size() < kPassesMin) return false;
        const plan::PassCost cost = plan::cost_of_pass(passes_, whole_);
        return cost.seconds <= kWholeMaxS && cost.bytes.value <= free_.value / 2;
    }
    [[nodiscard]] const std::vector<plan::MeasuredPass>& passes() const { return passes_; }
    [[nodiscard]] Bytes free() const { return free_; }
    [[nodiscard]] bool are_enough() const { return passes_.size() >= kPassesMin; }

  private:
    static constexpr int64_t kTokensMin = 16;
    static constexpr size_t kPassesMin = 3;  // for an estimate

    [[nodiscard]] bool may_run(int64_t tokens) const {
        constexpr double kSpentMaxS = 30;
        const plan::PassCost next = plan::cost_of_pass(passes_, {1, tokens});
        return spent_s_ + next.seconds <= kSpentMaxS && next.bytes.value <= free_.value / 4;
    }

    const std::vector<c10::IValue>& batch_;
    plan::PassSize whole_;
    const MeasureBatch& measure_;
    Bytes free_ = free_memory(1);
    double spent_s_ = 0;
    std::vector<plan::MeasuredPass> passes_;
};

}  // namespace

int64_t sample_tokens(const JobSetup& setup) {
    return setup.data ? setup.data->train.tokens_read() : setup.config().data.context;
}

void require_positions(const JobSetup& setup, int64_t tokens) {
    const auto table = graph::position_table(setup.segmented->lowered(), *setup.model);
    const int64_t positions = table ? table->rows : graph::longest_sequence(setup.model->module());
    if (positions == 0 || tokens <= positions) return;
    fail(ExitCode::kInput, "{}: the model has {} positions{}, but samples have {} tokens: {} {}{}",
         samples_name(setup, tokens), positions, table ? fmt::format(" ({})", table->name) : "",
         tokens,
         are_rows(setup) ? "make shorter rows with `dslaunch data prepare --context"
                         : "give --context",
         positions, are_rows(setup) ? "`" : " or less");
}

void warn_of_length(const JobSetup& setup) {
    const int64_t tokens = sample_tokens(setup);
    const int64_t positions = graph::longest_sequence(setup.model->module());
    if (positions == 0 || tokens <= positions) return;
    if (graph::position_table(setup.segmented->lowered(), *setup.model)) {
        // Data have been checked already, and their message says more.
        if (!setup.data) require_positions(setup, tokens);
        return;
    }
    log_warn("data",
             "{}: samples have {} tokens, but the model is made for {} (max_position_embeddings in "
             "its config.json), and `generate` and `serve` use no more: {} {}",
             samples_name(setup, tokens), tokens, positions,
             are_rows(setup) ? "make rows with `dslaunch data prepare --context` of at most"
                             : "give --context",
             positions);
}

PlanMeasurement measure_for_plan(const JobSetup& setup, const std::vector<c10::IValue>& batch,
                                 const MeasureBatch& measure) {
    const std::optional<plan::PassSize> size = size_of(setup, batch);
    if (!size || is_small(setup, *size)) return {measure(batch), batch, {}};
    GrowingPasses passes(batch, *size, measure);
    passes.run();
    if (!passes.are_enough() || passes.can_run_whole()) return {measure(batch), batch, {}};
    const plan::PassCost cost = plan::cost_of_pass(passes.passes(), *size);
    const int64_t longest = passes.passes().back().tokens;
    PlanMeasurement result{plan::info_of_pass(passes.passes(), *size), begin_of(batch, longest),
                           fmt::format("a pass over a micro batch of {} of {} tokens would need "
                                       "about {} and {:.0f} s on this machine, where {} are free",
                                       counted(size->rows, "sample"), size->tokens,
                                       to_text(cost.bytes), cost.seconds, to_text(passes.free()))};
    log_warn("plan",
             "{}, so memory and work of a step are not measured but estimated from passes over "
             "up to {} tokens",
             result.estimate, longest);
    return result;
}

}  // namespace dslaunch::job
