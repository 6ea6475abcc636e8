#include "launch/fleet/host_question.h"

#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "launch/fleet/fleet.h"
#include "launch/process/line_splitter.h"

namespace dslaunch::launch {
namespace {

using std::chrono::nanoseconds;
using std::chrono::steady_clock;

class Question : public FleetListener {
  public:
    Question(const std::vector<HostAddress>& hosts, Transport& transport, int signal_fd,
             const HostQuestion& question)
        : fleet_(hosts, transport, signal_fd), question_(question), answers_(hosts.size()) {
        fleet_.listen(this);
    }

    std::vector<HostAnswer> ask() {
        fleet_.connect(question_.connect_max, false);
        const auto answered = [&] {
            for (size_t i = 0; i < answers_.size(); ++i) {
                if (!answers_[i].payload && !fleet_.nodes()[i].ended) return false;
            }
            return true;
        };
        const bool all =
            fleet_.pump(answered, std::chrono::steady_clock::now() + question_.answer_max);
        for (size_t i = 0; i < answers_.size() && !all; ++i) {
            if (!answers_[i].payload)
                fleet_.blame(
                    i, fmt::format("no answer within {} s", question_.answer_max.count() / 1000));
        }
        fleet_.stop();
        for (size_t i = 0; i < answers_.size(); ++i) {
            answers_[i].host = fleet_.nodes()[i].address.name;
            if (!answers_[i].payload) answers_[i].error = fleet_.nodes()[i].error;
        }
        return std::move(answers_);
    }

    void host_greeted(size_t host) override {
        fleet_.send(host, question_.kind, question_.payload);
    }
    void take_frame(size_t host, const Frame& frame) override {
        if (frame.kind == question_.answer_kind) answers_[host].payload = frame.payload;
    }

  private:
    Fleet fleet_;
    const HostQuestion& question_;
    std::vector<HostAnswer> answers_;  // by host
};

constexpr int kQuestions = 3;
constexpr std::chrono::seconds kAnswerMax{10};
constexpr std::chrono::seconds kDevicesMax{25};  // longer than look_at_gpus() may block

class HostCheck final : private FleetListener {
  public:
    HostCheck(Fleet& fleet, const HostQuestions& questions)
        : fleet_(fleet),
          questions_(questions),
          request_(encode(ReportRequest{questions.directory})),
          states_(fleet.nodes().size()),
          asked_(states_.size()),
          answers_(states_.size(), 0),
          has_devices_(states_.size(), false) {}

    std::vector<HostState> run() {
        fleet_.listen(this);
        for (size_t i = 0; i < states_.size(); ++i) {
            if (fleet_.nodes()[i].serves()) ask(i);
        }
        fleet_.pump([this] { return over(); }, steady_clock::now() + kAnswerMax);
        for (size_t i = 0; i < states_.size(); ++i) {
            if (fleet_.nodes()[i].serves() && states_[i].report)
                fleet_.send(i, FrameKind::kDevices, encode(DeviceUseRequest{}));
        }
        fleet_.pump([this] { return knows_devices(); }, steady_clock::now() + kDevicesMax);
        fleet_.listen(nullptr);
        for (size_t i = 0; i < states_.size(); ++i) judge(i);
        return std::move(states_);
    }

  private:
    void ask(size_t host) {
        asked_[host] = wall_clock();
        fleet_.send(host, FrameKind::kReportRequest, request_);
    }
    void take_frame(size_t host, const Frame& frame) override {
        if (frame.kind == FrameKind::kDeviceReport) {
            states_[host].devices = decode<DeviceUseReport>(frame.payload);
            has_devices_[host] = true;
            return;
        }
        if (frame.kind != FrameKind::kNodeReport) {
            fail(ExitCode::kInternal, "received an unexpected answer to a request for a report");
        }
        const nanoseconds now = wall_clock();
        HostState& state = states_[host];
        const NodeReport report = decode<NodeReport>(frame.payload);
        const ClockOffset clock = clock_offset(asked_[host], now, nanoseconds(report.clock_ns));
        if (!state.report || clock.bound < state.clock.bound) state.clock = clock;
        state.report = report;
        if (++answers_[host] < kQuestions) ask(host);
    }
    [[nodiscard]] bool over() const {
        for (size_t i = 0; i < states_.size(); ++i) {
            if (answers_[i] < kQuestions && fleet_.nodes()[i].serves()) return false;
        }
        return true;
    }

    [[nodiscard]] bool knows_devices() const {
        for (size_t i = 0; i < states_.size(); ++i) {
            if (!has_devices_[i] && states_[i].report && fleet_.nodes()[i].serves()) return false;
        }
        return true;
    }

    void judge(size_t host) {
        const Fleet::Node& node = fleet_.nodes()[host];
        HostState& state = states_[host];
        if (node.greeted) {
            state.answer_time = std::chrono::duration_cast<std::chrono::milliseconds>(
                node.greeted_at - fleet_.started_at());
            state.same_binary =
                questions_.own_hash.empty() || node.hello.binary_hash == questions_.own_hash;
        }
        if (!node.error.empty()) return state.faults.push_back(node.error);
        if (!state.same_binary) {
            const std::string other = describe_other_processor(node.hello);
            state.faults.push_back(
                !other.empty()
                    ? other
                    : fmt::format(
                          "its dslaunch (version {}) differs from this machine's dslaunch ({}); "
                          "`dslaunch push` copies this machine's dslaunch to that host",
                          printable(node.hello.version), DSL_VERSION));
        }
        if (!state.report) {
            return state.faults.push_back(fmt::format("no report within {} s", kAnswerMax.count()));
        }
        if (questions_.directory_is_needed && !state.report->disk_error.empty()) {
            state.faults.push_back(fmt::format("the directory {}: {}",
                                               printable(questions_.directory),
                                               printable(state.report->disk_error)));
        }
        const std::string clock = describe_clock(state.clock);
        if (!clock.empty()) state.faults.push_back(clock);
        for (const Gpu& gpu : state.devices.gpus) {
            std::string fault = fault_of(gpu);
            if (!fault.empty()) state.faults.push_back(std::move(fault));
        }
        if (node.hello.gpus > 0 && !has_devices_[host])
            state.faults.push_back(
                fmt::format("its GPUs' driver did not answer within {} s", kDevicesMax.count()));
    }

    Fleet& fleet_;
    const HostQuestions& questions_;
    std::string request_;
    std::vector<HostState> states_;
    std::vector<nanoseconds> asked_;
    std::vector<int> answers_;
    std::vector<bool> has_devices_;
};

class FleetExec final : private FleetListener {
  public:
    FleetExec(Fleet& fleet, const ExecRequest& request)
        : fleet_(fleet),
          request_(request),
          results_(fleet.nodes().size()),
          stdout_(results_.size()),
          stderr_(results_.size()) {}

    std::vector<ExecResult> run() {
        fleet_.listen(this);
        for (size_t i = 0; i < results_.size(); ++i) {
            if (fleet_.nodes()[i].serves()) start(i);
        }
        const auto limit = request_.time_max ? steady_clock::now() + *request_.time_max
                                             : steady_clock::time_point::max();
        const bool all_over = fleet_.pump([this] { return over(); }, limit);
        fleet_.listen(nullptr);
        for (size_t i = 0; i < results_.size(); ++i) settle(i, all_over);
        return std::move(results_);
    }

  private:
    void start(size_t host) {
        StartRequest start;
        start.target_kind = TargetKind::kProgram;
        start.inherit_all = request_.environment.inherit_all;
        start.working_directory = request_.working_directory;
        StartRequest::Worker worker;
        worker.command = request_.command;
        worker.environment = request_.environment.set;
        worker.expanded = request_.environment.expanded;
        start.workers.push_back(std::move(worker));
        fleet_.send(host, FrameKind::kStart, encode(start));
    }

    void take_frame(size_t host, const Frame& frame) override {
        ExecResult& result = results_[host];
        switch (frame.kind) {
            case FrameKind::kStarted:
                return;
            case FrameKind::kOutput: {
                return take_output(host, decode<WorkerOutput>(frame.payload));
            }
            case FrameKind::kExited: {
                const auto exited = decode<WorkerExited>(frame.payload);
                result.ended = exited.start_error.empty();
                result.exit_status = static_cast<int>(exited.exit_status);
                result.signal_number = static_cast<int>(exited.signal_number);
                if (!result.ended) {
                    result.error = printable_lines(exited.start_error, kCauseIndent);
                    result.error_code = result.exit_status;
                }
                return;
            }
            default:
                fail(ExitCode::kInternal, "received an unexpected frame for a command");
        }
    }

    // Takes whole lines only. Keeps only the final state of a progress bar.
    void take_output(size_t host, const WorkerOutput& output) {
        ExecResult& result = results_[host];
        std::string lines;
        const bool is_stdout = output.stream == OutputStream::kStdout;
        (is_stdout ? stdout_[host] : stderr_[host])
            .add(
                output.lines, [&](std::string_view line) { (lines += line) += '\n'; },
                [](std::string_view) {});
        if (lines.empty()) return;
        if (request_.on_lines) return request_.on_lines(host, output.stream, lines);
        const auto room = static_cast<size_t>(request_.output_bytes_max) - result.output.size();
        result.output_was_cut |= lines.size() > room;
        result.output += lines.substr(0, room);
    }

    [[nodiscard]] std::optional<std::chrono::milliseconds> pause(
        std::chrono::milliseconds left) override {
        return request_.pause ? request_.pause(left) : left;
    }

    [[nodiscard]] bool decided(size_t host) const {
        return results_[host].ended || !results_[host].error.empty() ||
               !fleet_.nodes()[host].serves();
    }
    [[nodiscard]] bool over() const {
        for (size_t i = 0; i < results_.size(); ++i) {
            if (!decided(i)) return false;
        }
        return true;
    }

    void settle(size_t host, bool all_over) {
        ExecResult& result = results_[host];
        if (result.ended || !result.error.empty()) return;
        const Fleet::Node& node = fleet_.nodes()[host];
        result.error_code = static_cast<int>(ExitCode::kHosts);
        if (!node.serves()) {
            result.error = node.error.empty() ? "its agent has ended" : node.error;
        } else if (fleet_.interrupted()) {
            result.error = "interrupted";
            result.error_code = static_cast<int>(ExitCode::kInterrupted);
        } else if (!all_over) {
            result.error = fmt::format("did not end within {} s",
                                       std::chrono::duration<double>(*request_.time_max).count());
            result.error_code = static_cast<int>(ExitCode::kHang);
        }
    }

    Fleet& fleet_;
    const ExecRequest& request_;
    std::vector<ExecResult> results_;
    std::vector<LinePieces> stdout_, stderr_;
};

}  // namespace

std::vector<HostAnswer> ask_hosts(const std::vector<HostAddress>& hosts, Transport& transport,
                                  int signal_fd, const HostQuestion& question) {
    return Question(hosts, transport, signal_fd, question).ask();
}

std::vector<HostState> check_hosts(Fleet& fleet, const HostQuestions& questions) {
    return HostCheck(fleet, questions).run();
}

int ExecResult::code() const {
    if (!error.empty()) return error_code;
    return signal_number != 0 ? 128 + signal_number : exit_status;
}

std::vector<ExecResult> exec_on(Fleet& fleet, const ExecRequest& request) {
    return FleetExec(fleet, request).run();
}

}  // namespace dslaunch::launch
