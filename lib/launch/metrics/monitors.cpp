#include "launch/metrics/monitors.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <set>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/path.h"
#include "launch/files/append_file.h"
#include "launch/metrics/csv_files.h"
#include "launch/metrics/event_files.h"
#include "launch/metrics/metrics_sink.h"
#include "launch/metrics/prometheus_file.h"

namespace dslaunch::launch {
namespace {

std::vector<std::unique_ptr<MetricsSink>> make_sinks(const MonitorSettings& settings,
                                                     const Clock& clock) {
    std::vector<std::unique_ptr<MetricsSink>> sinks;
    if (!settings.event_folder.empty())
        sinks.push_back(std::make_unique<EventFiles>(settings.event_folder));
    if (!settings.csv_folder.empty())
        sinks.push_back(std::make_unique<CsvFiles>(settings.csv_folder));
    if (!settings.prometheus_file.empty())
        sinks.push_back(
            std::make_unique<PrometheusFile>(settings.prometheus_file, settings.run, clock));
    return sinks;
}

// Returns FOLDER's lock. Rows of two jobs in one file would be useless.
UniqueFd lock_folder(const std::string& folder) {
    UniqueFd lock(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!lock.valid() || ::access(folder.c_str(), W_OK | X_OK) != 0) {
        fail(ExitCode::kDisk,
             "{}: the monitors cannot write there: {}; set another folder with "
             "tensorboard.output_path or csv_monitor.output_path",
             folder, errno_text(errno));
    }
    if (::flock(lock.get(), LOCK_EX | LOCK_NB) == 0) return lock;
    if (errno == EWOULDBLOCK) {
        fail(ExitCode::kCheckpoint,
             "{}: the monitors of another job are writing there: wait until it ends, or set "
             "another job_name or output_path in `tensorboard` and `csv_monitor`",
             folder);
    }
    log_warn("launch", "cannot lock {}: {}; make sure that no other job writes there", folder,
             errno_text(errno));
    return lock;
}

// Returns the lock of FILE. It is on a separate file, FILE.lock, since each write replaces FILE.
// The file FILE.lock stays: without it, two later jobs could each lock a file of their own.
UniqueFd lock_file(const std::string& file) {
    const std::string path = file + ".lock";
    UniqueFd lock(
        ::open(path.c_str(), O_RDONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0644));
    if (lock.valid() && ::flock(lock.get(), LOCK_EX | LOCK_NB) == 0) return lock;
    if (lock.valid() && errno == EWOULDBLOCK) {
        fail(ExitCode::kCheckpoint,
             "dslaunch.metrics.prometheus: another job is writing to {}: wait until it ends, or "
             "give another file",
             file);
    }
    log_warn("launch", "cannot lock {}: {}; make sure that no other job writes to {}", path,
             errno_text(errno), file);
    return lock;
}

}  // namespace

// The sinks and their locks. Only the writer's thread uses them, except for take_news().
struct Monitors::Places {
    explicit Places(const MonitorSettings& wanted)
        : settings(wanted), feed(make_sinks(wanted, clock)) {}

    MonitorSettings settings;
    SystemClock clock;
    MetricsFeed feed;
    std::vector<UniqueFd> locks;

    void open() {
        for (const std::string& folder :
             std::set<std::string>{settings.event_folder, settings.csv_folder}) {
            if (folder.empty()) continue;
            make_folder_for(
                folder,
                "set another folder with tensorboard.output_path or csv_monitor.output_path");
            locks.push_back(lock_folder(folder));
        }
        const std::string& file = settings.prometheus_file;
        if (file.empty()) return;
        if (::access(folder_of(file).c_str(), W_OK | X_OK) != 0)
            fail(ExitCode::kDisk,
                 "dslaunch.metrics.prometheus: {} cannot be written: {}; give a file in a folder "
                 "that exists and that you may write to",
                 file, errno_text(errno));
        locks.push_back(lock_file(file));
    }
};

Monitors::Monitors(const MonitorSettings& settings, int wake_fd)
    : has_loss_scale_(settings.has_loss_scale),
      wake_fd_(wake_fd),
      places_(std::make_shared<Places>(settings)),
      writer_("the monitors' folder") {
    writer_.run_and_wait([places = places_] { places->open(); }, wake_fd,
                         "the monitors' files were being opened");
}

void Monitors::add(const MetricsRecord& record) {
    auto kept = record;
    if (!has_loss_scale_)
        std::erase_if(kept.events,
                      [](const MetricEvent& event) { return event.name == kLossScaleEvent; });
    const size_t bytes = 2 * kept.line.size() + 1;
    const auto write = [places = places_, kept = std::move(kept)] {
        static_cast<void>(places->feed.add(kept));
        return 0;
    };
    static_cast<void>(writer_.post(write, bytes));
}

std::string Monitors::take_news() {
    std::string news = places_->feed.take_news();
    return news.empty() ? writer_.take_news() : news;
}

void Monitors::finish(std::chrono::milliseconds standstill_max) {
    if (std::exchange(has_finished_, true)) return;
    const auto end = [places = places_] {
        static_cast<void>(places->feed.end());
        return 0;
    };
    static_cast<void>(writer_.post(end, 0));
    if (!writer_.wait(standstill_max, wake_fd_, kTurnsMax * standstill_max))
        log_warn("launch",
                 "{} bytes for the monitors were not written: their disk does not answer or is too "
                 "slow",
                 writer_.kept_bytes());
}

}  // namespace dslaunch::launch
