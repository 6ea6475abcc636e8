#include "launch/metrics/metrics_sink.h"

#include <fmt/format.h>

#include <utility>

#include "base/error.h"

namespace dslaunch::launch {

int64_t MetricsFeed::place_of(const MetricsRecord& record) const {
    if (record.samples) return *record.samples;
    return record.step == 0 ? 0 : newest_samples_.value_or(0);
}

int MetricsFeed::note(size_t sink, int status) {
    has_failed_.resize(sinks_.size());
    if (status == 0 || std::exchange(has_failed_.at(sink), 1) != 0) return status;
    const std::lock_guard lock(mutex_);
    news_.push_back(
        fmt::format("dslaunch: warning: writing to {} failed: {}; training continues, and this "
                    "monitor lacks the steps that cannot be written",
                    sinks_.at(sink)->name(), errno_text(-status)));
    return status;
}

int MetricsFeed::add(const MetricsRecord& record) {
    const int64_t samples = place_of(record);
    const bool is_first = !newest_samples_.has_value();
    const bool repeats =
        !is_first && (record.samples ? samples <= *newest_samples_ : samples < *newest_samples_);
    // The held-out loss before the first step has step 0.
    const bool is_new_run = is_first && record.step.value_or(2) <= 1;
    newest_samples_ = samples;
    int first_error = 0;
    for (size_t i = 0; i < sinks_.size(); ++i) {
        int status = 0;
        if (is_first || repeats) status = note(i, sinks_[i]->begin(samples, is_new_run));
        if (status == 0) status = note(i, sinks_[i]->write(record, samples));
        if (first_error == 0) first_error = status;
    }
    return first_error;
}

int MetricsFeed::end() {
    int first_error = 0;
    for (size_t i = 0; i < sinks_.size(); ++i) {
        const int status = note(i, sinks_[i]->end());
        if (first_error == 0) first_error = status;
    }
    return first_error;
}

std::string MetricsFeed::take_news() {
    const std::lock_guard lock(mutex_);
    if (news_.empty()) return "";
    std::string oldest = std::move(news_.front());
    news_.erase(news_.begin());
    return oldest;
}

}  // namespace dslaunch::launch
