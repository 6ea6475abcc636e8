// The places that keep the metrics of steps: metrics.jsonl and the monitors. Data path: JobOutput
// -> MetricsFeed -> sinks -> files. A feed and its sinks are used by one thread, except
// MetricsFeed::take_news().
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "launch/metrics/metrics_record.h"

namespace dslaunch::launch {

// A place that keeps metrics. The functions return 0 or a negative errno, and may block.
class MetricsSink {
  public:
    virtual ~MetricsSink() = default;

    // Called before the first record of a job. Also called if the job was started again from an
    // earlier step, before the first record that repeats samples. All values from the sample count
    // SAMPLES on will be written again. IS_NEW_RUN: the record is the first step of a run, so all
    // values that the sink has kept so far belong to a different run.
    [[nodiscard]] virtual int begin(int64_t samples, bool is_new_run) = 0;
    // Keeps RECORD. Its place on the axis is SAMPLES: the samples of all steps up to its step.
    [[nodiscard]] virtual int write(const MetricsRecord& record, int64_t samples) = 0;
    // Returns true if this sink needs the true place of each record, so that a record must wait
    // until its place is known. Other sinks get such a record without delay, with the place 0.
    [[nodiscard]] virtual bool needs_place() const { return true; }
    // Called once after the last record.
    [[nodiscard]] virtual int end() { return 0; }
    // Returns the name of this sink for messages, such as a path.
    [[nodiscard]] virtual std::string name() const = 0;
};

// Passes records to sinks, and finds the beginning of a run and the repeated steps.
class MetricsFeed {
  public:
    explicit MetricsFeed(std::vector<std::unique_ptr<MetricsSink>> sinks)
        : sinks_(std::move(sinks)) {}

    // Passes RECORD to every sink. Returns 0, or the negative errno of the first sink that failed.
    // A record that is not a step, such as a held-out loss, gets the place of the newest step. If a
    // resumed job begins with such a record, its place is known only after the first step, so sinks
    // that need places get the record then. If a sink's begin() has failed, each record calls it
    // again; the sink gets no records until begin() succeeds.
    int add(const MetricsRecord& record);
    // Ends every sink. Returns 0, or the negative errno of the first sink that failed.
    int end();
    // Returns one line about a sink that failed, once for each sink; empty if there is no news. Any
    // thread.
    [[nodiscard]] std::string take_news();

  private:
    // The arguments of a begin() that is still to be called.
    struct Begin {
        int64_t samples;
        bool is_new_run;
    };

    [[nodiscard]] int64_t place_of(const MetricsRecord& record) const;
    int note(size_t sink, int status);
    void begin_all(const Begin& begin);
    int pass(size_t sink, const MetricsRecord& record, int64_t samples);
    int keep_waiting(const MetricsRecord& record);

    std::vector<std::unique_ptr<MetricsSink>> sinks_;
    std::optional<int64_t> newest_samples_;  // of this job; nullopt before the first record
    std::optional<MetricsRecord> waiting_;   // the newest record whose place is not known yet
    std::vector<std::optional<Begin>> due_;  // by sink
    std::vector<char> has_failed_;
    std::mutex mutex_;
    std::vector<std::string> news_;  // guarded by mutex_
};

}  // namespace dslaunch::launch
