#include "launch/fleet/fleet_exec.h"

#include <fmt/format.h>

#include <algorithm>
#include <csignal>

#include "base/error.h"
#include "base/text.h"
#include "launch/fleet/fleet.h"
#include "launch/process/line_splitter.h"

namespace dslaunch::launch {
namespace {

using std::chrono::steady_clock;

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
                fail(ExitCode::kInternal, "an unexpected frame for a command");
        }
    }

    // Whole lines alone are of use here: of a progress bar its end.
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

int ExecResult::code() const {
    if (!error.empty()) return error_code;
    return signal_number != 0 ? 128 + signal_number : exit_status;
}

std::vector<ExecResult> exec_on(Fleet& fleet, const ExecRequest& request) {
    return FleetExec(fleet, request).run();
}

}  // namespace dslaunch::launch
