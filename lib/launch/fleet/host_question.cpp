#include "launch/fleet/host_question.h"

#include <fmt/format.h>

#include <utility>

#include "base/error.h"
#include "base/text.h"

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
            fail(ExitCode::kInternal, "an unexpected answer to a request for a report");
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
            state.faults.push_back(
                fmt::format("its dslaunch (version {}) differs from this one ({}); `dslaunch push` "
                            "sends this one",
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

}  // namespace

std::vector<HostAnswer> ask_hosts(const std::vector<HostAddress>& hosts, Transport& transport,
                                  int signal_fd, const HostQuestion& question) {
    return Question(hosts, transport, signal_fd, question).ask();
}

std::vector<HostState> check_hosts(Fleet& fleet, const HostQuestions& questions) {
    return HostCheck(fleet, questions).run();
}

}  // namespace dslaunch::launch
