#include "launch/metrics/metrics_sink.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/error.h"

namespace dslaunch::launch {
namespace {

// Returns true if RECORD has a held-out loss and no training loss.
bool is_evaluation(const MetricsRecord& record) {
    const auto has = [&](std::string_view name) {
        return std::ranges::any_of(record.events, [&](const MetricEvent& event) {
            return event.name.starts_with(kEventPrefix) &&
                   std::string_view(event.name).substr(kEventPrefix.size()) == name;
        });
    };
    return has("eval_loss") && !has("train_loss");
}

// Estimates the number of samples at which a sink shows EARLIER, a record that came before STEP in
// the same run and contains no number of samples. Assumes that all steps have equally many samples.
// The result is less than STEP's number.
int64_t place_before(const MetricsRecord& step, const MetricsRecord& earlier) {
    const int64_t samples = step.samples.value_or(0);
    if (!step.step || !earlier.step || *step.step <= *earlier.step || *earlier.step < 0)
        return std::max<int64_t>(0, samples - 1);
    const double part = static_cast<double>(*earlier.step) / static_cast<double>(*step.step);
    return std::max<int64_t>(0, std::min(std::llround(static_cast<double>(samples) * part),
                                         static_cast<long long>(samples - 1)));
}

}  // namespace

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

void MetricsFeed::begin_all(const Begin& begin) {
    for (auto& due : due_) {
        const Begin older = due.value_or(begin);
        due = Begin{std::min(older.samples, begin.samples), older.is_new_run || begin.is_new_run};
    }
}

int MetricsFeed::pass(size_t sink, const MetricsRecord& record, int64_t samples) {
    auto& due = due_.at(sink);
    if (due) {
        const int status = note(sink, sinks_[sink]->begin(due->samples, due->is_new_run));
        if (status != 0) return status;
        due.reset();
    }
    return note(sink, sinks_[sink]->write(record, samples));
}

// Keeps RECORD, which came before any step, until its place is known.
int MetricsFeed::keep_waiting(const MetricsRecord& record) {
    waiting_ = record;
    int first_error = 0;
    for (size_t i = 0; i < sinks_.size(); ++i) {
        if (sinks_[i]->needs_place()) continue;
        const int status = pass(i, record, 0);
        if (first_error == 0) first_error = status;
    }
    return first_error;
}

int MetricsFeed::add(const MetricsRecord& record) {
    due_.resize(sinks_.size());
    const bool is_first = !newest_samples_.has_value();
    const bool evaluates = is_evaluation(record);
    // The held-out loss before the first step has step 0.
    const bool is_at_begin = record.step.value_or(2) <= (evaluates ? 0 : 1);
    if (is_first && !record.samples && !is_at_begin) return keep_waiting(record);
    const int64_t samples = place_of(record);
    const bool is_step = record.samples.has_value() && !evaluates;
    const bool repeats =
        !is_first && (is_step ? samples <= *newest_samples_ : samples < *newest_samples_);
    const bool is_new_run = is_first && !waiting_ && is_at_begin;
    // An evaluation has the same place as its step. The sinks keep the values of the step itself,
    // so only values after this place count as repeated.
    const int64_t repeated = samples + (evaluates && !is_at_begin ? 1 : 0);
    if (is_first || repeats) begin_all({repeated, is_new_run});
    newest_samples_ = samples;
    const auto waited = std::exchange(waiting_, std::nullopt);
    int first_error = 0;
    for (size_t i = 0; i < sinks_.size(); ++i) {
        int status = pass(i, record, samples);
        if (status == 0 && waited && sinks_[i]->needs_place())
            status = pass(i, *waited, place_before(record, *waited));
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
