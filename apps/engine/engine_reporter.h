// The reporter of a rank in a program that uses the library. It writes metrics to the run's folder
// and progress to the log. It sends nothing to a launcher; the program itself asks the rank to end.
// Data path: trainer -> [here] -> file, log. Threads: one.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "launch/metrics/metrics_sink.h"
#include "runtime/train/reporter.h"

namespace dslaunch::engine {

// Writes metrics and progress; see the top of this file.
class EngineReporter final : public runtime::Reporter {
  public:
    // Writes metrics to metrics.jsonl in OUTPUT, and opens this file for the first line. If OUTPUT
    // is empty, drops them. asked_to_end() returns ASKED, which any thread may set.
    EngineReporter(std::string output, std::shared_ptr<const std::atomic<bool>> asked)
        : output_(std::move(output)), asked_(std::move(asked)) {}

    // Throws Error{kDisk} if the file cannot be written, Error{kCheckpoint} if another job writes
    // there.
    void metrics(std::string_view line) override;
    void progress(std::string_view line) override;
    void run_info(std::string_view) override {}
    void run_result(std::string_view) override {}
    void ready() override {}
    void heartbeat(const launch::Heartbeat&) override {}
    void health(std::string_view) override {}
    void failure(ExitCode, std::string_view) override {}
    [[nodiscard]] bool asked_to_end() const override {
        return asked_->load(std::memory_order_relaxed);
    }

  private:
    std::string output_;
    std::unique_ptr<launch::MetricsFeed> feed_;
    std::shared_ptr<const std::atomic<bool>> asked_;
    static_assert(std::atomic<bool>::is_always_lock_free);
};

}  // namespace dslaunch::engine
