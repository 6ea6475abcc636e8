// A rank of a job inside a program that has its own loop. It has the same parts as a rank of
// dsworker, but the program gives it the batches. Data path: include/dslaunch/engine.h -> [here] ->
// lib/job. Threads: one at a time; any thread may set ASKED.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "dslaunch/engine.h"
#include "engine/engine_reporter.h"
#include "engine/fed_samples.h"
#include "job/run/training_rank.h"

namespace dslaunch::engine {

// A rank in training; see the top of this file. Functions throw the errors of their parts.
class EngineRun {
  public:
    // Sets up the rank: see Engine::open(). ASKED becomes true when the program asks to end. Blocks
    // until all ranks have connected.
    EngineRun(const EngineOptions& options, const Ranks& ranks,
              std::shared_ptr<const std::atomic<bool>> asked);
    EngineRun(const EngineRun&) = delete;
    EngineRun& operator=(const EngineRun&) = delete;
    ~EngineRun();

    // Checks and copies the rows for the next step. Does not wait for another rank. Throws
    // Error{kInput}.
    void take_rows(const std::vector<at::Tensor>& inputs);
    // Takes a step with the rows of take_rows(). REQUIRES: take_rows() was called before.
    [[nodiscard]] StepResult step();
    // These two calls do the same for an evaluation: take_held_out() checks and copies its rows,
    // and evaluate() returns their mean loss.
    void take_held_out(const std::vector<at::Tensor>& inputs);
    [[nodiscard]] double evaluate();

    // Throws Error{kUsage} if the options name no output folder. DOES is the call's name in the
    // message.
    void require_output(const char* does) const;
    void save(bool waits);
    void export_weights();
    // Finishes saves and leaves the other ranks. No other call may follow.
    void close();
    // Makes the ranks that wait for this rank fail with the message WHY. Any thread.
    void poison(const std::string& why) const { rank_.poison(why); }

    [[nodiscard]] int rank() const { return rank_.place().rank(); }
    [[nodiscard]] bool is_alone() const { return rank_.place().world_size() == 1; }
    [[nodiscard]] int64_t steps() const;
    [[nodiscard]] int64_t rows_seen() const;
    [[nodiscard]] const config::BatchConfig& batch() const { return rank_.config().batch; }
    [[nodiscard]] int data_rank() const { return rank_.setup().data_rank(); }
    [[nodiscard]] std::string config_json() const;

  private:
    struct Running;
    // The calls that all ranks make together.
    enum class Call : int { kTrain, kEvaluate, kSave, kBeginSave, kExport, kClose };
    void agree(Call call, int64_t rows = 0) const;
    [[nodiscard]] job::TrainingOptions training_options(const EngineOptions& options,
                                                        const Ranks& ranks);
    void set_up();
    void require_schedule() const;
    void tell_unused() const;
    void compare_options() const;
    void compare_settings() const;
    void compare_models() const;

    EngineReporter reporter_;
    std::optional<FedForm> form_;
    job::TrainingRank rank_;
    std::vector<std::vector<c10::IValue>> micro_batches_;  // for the next step
    std::unique_ptr<Running> running_;                     // uses all other members
};

}  // namespace dslaunch::engine
