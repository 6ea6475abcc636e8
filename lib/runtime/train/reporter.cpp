#include "runtime/train/reporter.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <utility>

#include "base/fd.h"
#include "base/log.h"
#include "base/new_files.h"
#include "base/text/json.h"
#include "launch/protocol/control.h"
#include "launch/protocol/messages.h"

namespace dslaunch::runtime {

namespace {

class ControlReporter final : public Reporter {
  public:
    explicit ControlReporter(int fd) : fd_(fd), listener_([this] { listen(); }) {}

    ~ControlReporter() override {
        ::shutdown(fd_.get(), SHUT_RD);  // ends the listener's read
        listener_.join();
    }

    void metrics(std::string_view line) override { send(launch::ControlKind::kMetrics, line); }
    void run_info(std::string_view json) override { send(launch::ControlKind::kRunInfo, json); }
    void run_result(std::string_view json) override { send(launch::ControlKind::kRunResult, json); }
    void progress(std::string_view line) override { send(launch::ControlKind::kProgress, line); }
    void ready() override { send(launch::ControlKind::kReady, {}); }
    void heartbeat(const launch::Heartbeat& heartbeat) override {
        send(launch::ControlKind::kHeartbeat, launch::encode(heartbeat));
    }
    void health(std::string_view record) override { send(launch::ControlKind::kHealth, record); }
    void failure(ExitCode code, std::string_view message) override {
        const launch::AgentProblem why{static_cast<uint32_t>(code), std::string(message)};
        send(launch::ControlKind::kFailure, launch::encode(why));
    }
    [[nodiscard]] bool asked_to_end() const override {
        return asked_to_end_.load(std::memory_order_relaxed);
    }

  private:
    void send(launch::ControlKind kind, std::string_view payload) {
        const std::lock_guard lock(mutex_);
        // Errors are ignored: if the agent is lost, this process is ended by other means.
        static_cast<void>(write_full(
            fd_.get(), launch::encode(launch::ControlFrame{kind, std::string(payload)})));
    }

    void listen() {
        launch::ControlDecoder decoder;
        char bytes[4096];
        for (;;) {
            const ssize_t count = ::read(fd_.get(), bytes, sizeof bytes);
            if (count < 0 && errno == EINTR) continue;
            if (count <= 0) return;
            decoder.append({bytes, static_cast<size_t>(count)});
            while (const auto frame = decoder.next())
                if (frame->kind == launch::ControlKind::kSaveAndEnd) asked_to_end_ = true;
        }
    }

    UniqueFd fd_;
    std::mutex mutex_;
    std::atomic<bool> asked_to_end_{false};
    std::thread listener_;
};

class FileReporter final : public Reporter {
  public:
    explicit FileReporter(const std::string& output) : output_(output) {
        if (output.empty()) return;
        static_cast<void>(make_folders(output));  // opening the file reports the error
        const std::string path = output + "/metrics.jsonl";
        metrics_.reset(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
        if (!metrics_.valid())
            fail(ExitCode::kDisk, "{}: cannot be written: {}", path, errno_text(errno));
        keeps_run_file_ = ::access((output + "/run.json").c_str(), F_OK) == 0;
    }

    void metrics(std::string_view line) override {
        if (!metrics_.valid()) return;
        // Keeps the lines of an earlier run until this run writes its first line.
        if (!std::exchange(has_lines_, true) && ::ftruncate(metrics_.get(), 0) != 0)
            fail(ExitCode::kDisk, "{}/metrics.jsonl: cannot be emptied: {}", output_,
                 errno_text(errno));
        const std::string text = std::string(line) + "\n";
        if (const int status = write_full(metrics_.get(), text); status != 0)
            fail(ExitCode::kDisk, "{}/metrics.jsonl: writing failed: {}", output_,
                 errno_text(-status));
    }
    void run_info(std::string_view json) override {
        info_ = json;
        if (!keeps_run_file_) write_run_file("null");
    }
    void run_result(std::string_view json) override { write_run_file(json); }
    void progress(std::string_view line) override { log_info("train", "{}", line); }
    void ready() override {
        if (std::exchange(keeps_run_file_, false)) write_run_file("null");
    }
    void heartbeat(const launch::Heartbeat&) override {}
    void health(std::string_view) override {}
    void failure(ExitCode, std::string_view) override {}
    [[nodiscard]] bool asked_to_end() const override { return false; }

  private:
    void write_run_file(std::string_view result) const {
        if (output_.empty()) return;
        JsonWriter json;
        json.begin_object().key("run").raw(info_).key("result").raw(result).end_object();
        write_file_atomically(output_ + "/run.json", json.text() + "\n", 0600);
    }

    std::string output_;
    std::string info_ = "null";
    bool keeps_run_file_ = false;  // true if run.json is an earlier run's
    bool has_lines_ = false;       // true if metrics.jsonl is this run's
    UniqueFd metrics_;
};

}  // namespace

std::unique_ptr<Reporter> make_control_reporter(int control_fd) {
    return std::make_unique<ControlReporter>(control_fd);
}

std::unique_ptr<Reporter> make_file_reporter(const std::string& output) {
    return std::make_unique<FileReporter>(output);
}

std::jthread send_heartbeats(Reporter& reporter, Duration interval,
                             std::function<launch::Heartbeat()> where) {
    return std::jthread([&reporter, interval, where = std::move(where)](std::stop_token stop) {
        std::mutex mutex;
        std::condition_variable_any stopped;
        std::unique_lock lock(mutex);
        while (!stop.stop_requested()) {
            reporter.heartbeat(where());
            stopped.wait_for(lock, stop, interval, [] { return false; });
        }
    });
}

}  // namespace dslaunch::runtime
