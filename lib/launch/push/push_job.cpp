#include "launch/push/push_job.h"

#include <fmt/format.h>

#include "base/error.h"
#include "base/terminal/progress.h"
#include "base/text.h"
#include "launch/files/file_facts.h"
#include "launch/fleet/agent_end.h"
#include "launch/fleet/fleet.h"
#include "launch/fleet/fleet_exec.h"
#include "launch/push/bootstrap.h"

namespace dslaunch::launch {
namespace {

constexpr int64_t kMib = int64_t{1} << 20;

class PushRun {
  public:
    explicit PushRun(const PushJob& job)
        : job_(job),
          hosts_(job.hosts.size()),
          progress_("push", "reaching " + counted(std::ssize(job.hosts), "host")) {}

    std::vector<PushedHost> run() {
        for (size_t i = 0; i < hosts_.size(); ++i) all_.push_back(i);
        if (send_to(all_, true)) return std::move(hosts_);
        install();
        std::vector<size_t> good;
        for (const size_t i : all_) {
            if (hosts_[i].result.error.empty()) good.push_back(i);
        }
        static_cast<void>(send_to(good, false));
        return std::move(hosts_);
    }

  private:
    // False: nothing was sent, since some hosts (needy_) need dslaunch first.
    bool send_to(const std::vector<size_t>& which, bool may_install) {
        if (which.empty()) return true;
        std::vector<HostAddress> addresses;
        for (const size_t i : which) addresses.push_back(job_.hosts[i]);
        const auto transport = job_.make_transport();
        Fleet fleet(addresses, *transport, job_.signal_fd);
        fleet.connect(job_.connect_max, true);
        if (fleet.interrupted()) fail(ExitCode::kInterrupted, "interrupted");
        const std::string own_hash = own_binary_hash();
        for (size_t k = 0; k < which.size(); ++k) {
            const Fleet::Node& node = fleet.nodes()[k];
            if (lacks_dslaunch(node, own_hash)) {
                needy_.push_back(which[k]);
                // A host with an error keeps it: this one counts only where there is none.
                if (!may_install) fleet.lose(k, "its dslaunch is still another one");
            } else if (!node.error.empty()) {
                hosts_[which[k]].result.error = node.error;
            }
        }
        if (may_install && !needy_.empty()) {
            fleet.stop();
            return false;
        }
        PushSender sender(fleet, job_.files);
        progress_.begin("sending", 0, "MiB");
        sender.tell_progress_to([this](int64_t done, int64_t total) {
            progress_.total(total / kMib);
            progress_.done(done / kMib);
        });
        std::vector<PushResult> results = sender.run();
        progress_.begin("checking what the hosts have");
        if (!job_.check_program.empty()) check(fleet, results);
        for (size_t k = 0; k < which.size(); ++k) hosts_[which[k]].result = std::move(results[k]);
        fleet.stop();
        return true;
    }

    static bool lacks_dslaunch(const Fleet::Node& node, const std::string& own_hash) {
        if (node.greeted) return !node.error.empty() || node.hello.binary_hash != own_hash;
        return node.misunderstood || node.exit_status == kNoProgram;
    }

    void install() {
        progress_.begin("installing dslaunch on " + counted(std::ssize(needy_), "host"));
        std::vector<HostAddress> addresses;
        for (const size_t i : needy_) addresses.push_back(job_.hosts[i]);
        const std::vector<std::string> errors =
            bootstrap_hosts(addresses, agent_files(), job_.make_transport, job_.signal_fd);
        for (size_t k = 0; k < needy_.size(); ++k) {
            hosts_[needy_[k]].result.error = errors[k];
            hosts_[needy_[k]].got_dslaunch = errors[k].empty();
        }
    }

    void check(Fleet& fleet, std::vector<PushResult>& results) const {
        ExecRequest request;
        request.command = {job_.check_program, "--help"};
        request.environment.inherit_all = false;
        const std::vector<ExecResult> ends = exec_on(fleet, request);
        for (size_t i = 0; i < ends.size(); ++i) {
            if (!results[i].error.empty() || ends[i].code() == 0) continue;
            const std::string said =
                ends[i].error.empty() ? printable(trim(ends[i].output)) : ends[i].error;
            results[i].error = fmt::format("everything is there, but {} does not start: {}",
                                           job_.check_program, said);
        }
    }

    const PushJob& job_;
    std::vector<PushedHost> hosts_;
    std::vector<size_t> all_;
    std::vector<size_t> needy_;
    Progress progress_;
};

}  // namespace

std::vector<PushedHost> run_push(const PushJob& job) {
    return PushRun(job).run();
}

}  // namespace dslaunch::launch
