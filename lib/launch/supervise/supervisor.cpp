#include "launch/supervise/supervisor.h"

#include <fmt/format.h>

#include "base/bytes.h"
#include "base/error.h"
#include "base/text.h"
#include "launch/process/timing.h"
#include "launch/supervise/restart_rules.h"
#include "launch/transport/transport.h"

namespace dslaunch::launch {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// The time from the end of an agent's lease until its ranks are gone.
constexpr milliseconds kEndAfterLease{2'000};

}  // namespace

Supervisor::Supervisor(const JobSpec& spec, Transport& transport, JobOutput& output, int signal_fd)
    : spec_(spec),
      output_(output),
      signal_fd_(signal_fd),
      fleet_(addresses_of(spec.nodes), transport, signal_fd),
      preparation_(spec, fleet_, output),
      ranks_(spec, fleet_, output) {
    fleet_.listen(this);
}

AttemptResult Supervisor::run(const AttemptNumber& number, const std::vector<CutOffHost>& cut_off) {
    output_.begin_work("reaching " + counted(std::ssize(spec_.nodes), "host"));
    try {
        preparation_.run();
        wait_for_leases(cut_off);
        if (number.starts > 0 && !interrupted()) end_earlier_attempts(number);
        if (!interrupted()) start_and_watch(number);
    } catch (...) {
        if (!ranks_.begun()) note_bad_hosts();
        // If hosts are missing in a new attempt after a failure, the launcher waits for them, so
        // the agents that did connect must connect again.
        stop(number.restarts > 0 && !bad_hosts_.empty() && !interrupted());
        throw;
    }
    const ExitCode brought = bring_weights();
    stop(restart_may_follow(number.restarts));
    AttemptResult result = ranks_.conclude();
    if (result.exit_code == 0) result.exit_code = static_cast<int>(brought);
    result.cut_off = cut_off_hosts();
    result.left_processes = !leftovers_.empty();
    if (result.left_processes) result.may_restart = false;
    result.report += leftovers_;
    return result;
}

// Brings the weights from rank 0's host after a training that succeeded. Returns kOk if they are
// here now or are not needed here.
ExitCode Supervisor::bring_weights() {
    if (spec_.target_kind != TargetKind::kModel || spec_.output_directory.empty() ||
        spec_.transport == TransportKind::kLocal || spec_.bring_bytes_max == 0 || interrupted() ||
        ranks_.conclude().exit_code != 0) {
        return ExitCode::kOk;
    }
    constexpr size_t kHost = 0;  // rank 0's host
    std::vector<std::string> paths;
    for (const std::string& name : spec_.weight_files)
        paths.push_back(spec_.output_directory + "/" + name);
    output_.begin_work("copying the weights from " + printable(spec_.nodes[kHost].name));
    bringer_.emplace(fleet_, kHost, BringRules{paths, spec_.bring_bytes_max});
    const Brought brought = bringer_->run();
    tell_brought(fleet_.nodes()[kHost].address, paths, brought);
    return brought.state == Brought::State::kFailed ? brought.code : ExitCode::kOk;
}

void Supervisor::tell_brought(const HostAddress& from, const std::vector<std::string>& paths,
                              const Brought& brought) {
    const std::string name = printable(from.name);
    if (brought.state == Brought::State::kNothing || brought.state == Brought::State::kHere) return;
    if (brought.state == Brought::State::kBrought) {
        if (!spec_.log.quiet)
            output_.note(fmt::format(
                "dslaunch: copied from {} to {}: {} ({})", name, printable(spec_.output_directory),
                join(spec_.weight_files, ", "), to_text(Bytes{brought.bytes})));
        return;
    }
    std::string command = "scp";
    if (!spec_.ssh_config_path.empty()) command += " -F " + printable(spec_.ssh_config_path);
    if (from.port > 0) command += fmt::format(" -P {}", from.port);
    for (const std::string& path : paths)
        command += fmt::format(" {}{}:{}", from.user.empty() ? "" : from.user + "@",
                               from.address.empty() ? name : from.address, printable(path));
    command += " " + printable(spec_.output_directory);
    output_.note(
        brought.state == Brought::State::kTooLarge
            ? fmt::format("dslaunch: the weights stay on {}, because their size ({}) exceeds the "
                          "limit of --bring-weights {}; copy them with: {}",
                          name, to_text(Bytes{brought.bytes}),
                          to_text(Bytes{spec_.bring_bytes_max}), command)
            : fmt::format("dslaunch: error: the weights stay on {}: {}; copy them with: {}", name,
                          printable(brought.error), command));
}

void Supervisor::wait_for_leases(const std::vector<CutOffHost>& cut_off) {
    for (const CutOffHost& host : cut_off) {
        bool came_again = false;
        for (size_t i = 0; i < fleet_.nodes().size(); ++i) {
            came_again = came_again ||
                         (fleet_.nodes()[i].serves() && preparation_.machine_of(i) == host.machine);
        }
        const auto left = host.lease_over_at - steady_clock::now();
        if (left <= left.zero() || came_again) continue;
        output_.note(
            fmt::format("dslaunch: the connection to host {} was lost; before the restart, "
                        "dslaunch waits up to {} s until its ranks have ended",
                        host.name, std::chrono::ceil<std::chrono::seconds>(left).count()));
        static_cast<void>(fleet_.pump([this] { return interrupted(); }, host.lease_over_at));
        if (interrupted()) return;
    }
    fleet_.fail_if_bad("before the ranks started, dslaunch lost");
}

std::vector<CutOffHost> Supervisor::cut_off_hosts() const {
    std::vector<CutOffHost> found;
    for (size_t i = 0; i < fleet_.nodes().size(); ++i) {
        const Fleet::Node& node = fleet_.nodes()[i];
        if (!node.cut_off_at) continue;
        found.push_back({node.address.name, preparation_.machine_of(i),
                         *node.cut_off_at + kLeaseMax + kEndAfterLease});
    }
    return found;
}

// Ends the processes that earlier attempts left: old ranks on one host must not meet new ranks on
// another host. All hosts must answer before any host starts ranks.
void Supervisor::end_earlier_attempts(const AttemptNumber& number) {
    left_before_.assign(spec_.nodes.size(), std::nullopt);
    fleet_.send_all(FrameKind::kStopJob, encode(StopJobRequest{spec_.launch_id, number.starts}));
    const auto all_answered = [this] {
        for (size_t i = 0; i < left_before_.size(); ++i) {
            if (!left_before_[i] && !fleet_.nodes()[i].ended) return false;
        }
        return true;
    };
    static_cast<void>(fleet_.pump(all_answered, steady_clock::now() + kLeftoversMax + kSilenceMax));
    if (interrupted()) return;
    for (size_t i = 0; i < left_before_.size(); ++i) judge_leftovers(i);
    fleet_.fail_if_bad("cannot start another attempt, because of errors on");
}

void Supervisor::judge_leftovers(size_t host) {
    if (!left_before_[host]) {
        return fleet_.lose(
            host, "its agent did not answer the request to end processes of an earlier attempt");
    }
    std::vector<std::string> ended, living;
    for (const LeftProcess& left : left_before_[host]->processes) {
        (left.ended ? ended : living)
            .push_back(fmt::format("{} ({})", left.name.pid, printable(left.command)));
    }
    if (!ended.empty()) {
        output_.note(fmt::format(
            "dslaunch: host {}: ended processes that an earlier attempt left running: {}",
            spec_.nodes[host].name, join(ended, ", ")));
    }
    if (living.empty()) return;
    fleet_.blame(host, fmt::format("processes of an earlier attempt cannot be killed: {}; they "
                                   "wait for a disk or a driver, and would run alongside this "
                                   "attempt: leave this host out (--exclude), or reboot it",
                                   join(living, ", ")));
}

void Supervisor::start_and_watch(const AttemptNumber& number) {
    std::vector<StartRequest> requests;
    for (size_t i = 0; i < spec_.nodes.size(); ++i) {
        requests.push_back(preparation_.start_request(i, number));
    }
    ranks_.start(requests);
    ranks_.watch();
}

void Supervisor::note_bad_hosts() {
    for (const Fleet::Node& node : fleet_.nodes()) {
        if (!node.error.empty()) bad_hosts_.push_back(node.address.name);
    }
}

bool Supervisor::restart_may_follow(int restarts) const {
    if (interrupted()) return false;
    const AttemptResult so_far = ranks_.conclude();
    return decide_restart({spec_.target_kind, so_far.exit_code, so_far.may_restart, restarts,
                           spec_.max_restarts}) == RestartVerdict::kRestart;
}

void Supervisor::stop(bool come_again) {
    const milliseconds limit = ranks_.begun() ? kUnkillableMax + kFarewellMax : kFarewellMax;
    fleet_.stop({.come_again = come_again, .limit = limit});
}

void Supervisor::take_frame(size_t host, const Frame& frame) {
    if (bringer_ && frame.kind == FrameKind::kFetched) return bringer_->take(host, frame);
    if (frame.kind == FrameKind::kJobStopped && !left_before_.empty()) {
        left_before_[host] = decode<StopJobReply>(frame.payload);
        return;
    }
    if (!ranks_.take(host, frame)) preparation_.take(host, frame);
}

void Supervisor::take_diagnostic(size_t host, const std::string& line) {
    output_.note(fmt::format("[{}] {}", spec_.nodes[host].name, line));
}

void Supervisor::take_problem(size_t host, const std::string& message) {
    if (fleet_.stopping()) {
        leftovers_ += fmt::format("dslaunch: host {}: {}\n", spec_.nodes[host].name, message);
    } else if (ranks_.begun()) {
        // The agent ends its ranks now, so their ends do not show the cause.
        ranks_.blame_host(host, fleet_.nodes()[host].error);
    }
}

void Supervisor::host_ended(size_t host, bool lost) {
    if (ranks_.begun()) {
        ranks_.end_host(host, lost);
    } else if (!lost && !fleet_.stopping()) {
        fleet_.blame(host, "its agent was told to end before the ranks started");
    }
}

bool Supervisor::end_wished(const std::string& cause) {
    if (ranks_.begun() && !fleet_.stopping() && !bringer_) return ranks_.end_wished(cause);
    output_.streams().hurry();
    return !fleet_.stopping();  // once the fleet is stopping, pump() waits for the agents' farewell
                                // as long as usual
}

std::optional<milliseconds> Supervisor::pause(milliseconds left) {
    output_.tell_news();
    output_.tell_progress();
    return output_.streams().make_way(left, signal_fd_, fleet_.stopping());
}

}  // namespace dslaunch::launch
