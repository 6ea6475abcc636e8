#include "engine/engine_reporter.h"

#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "base/new_files.h"
#include "launch/metrics/metrics_file.h"
#include "launch/metrics/metrics_record.h"

namespace dslaunch::engine {

void EngineReporter::metrics(std::string_view line) {
    if (output_.empty()) return;
    if (feed_ == nullptr) {
        static_cast<void>(make_folders(output_));  // opening the file reports the error
        std::vector<std::unique_ptr<launch::MetricsSink>> sinks;
        sinks.push_back(std::make_unique<launch::MetricsFile>(output_));
        feed_ = std::make_unique<launch::MetricsFeed>(std::move(sinks));
    }
    if (const int status = feed_->add(launch::read_metrics(line)); status != 0)
        fail(ExitCode::kDisk, "{}/metrics.jsonl: writing failed: {}", output_, errno_text(-status));
}

void EngineReporter::progress(std::string_view line) {
    log_info("train", "{}", line);
}

}  // namespace dslaunch::engine
