// The supervisor with agents that report facts about their machines: hosts that must be refused,
// the place where the ranks meet, and the data that they get.
#include <fmt/format.h>

#include <csignal>

#include "base/error.h"
#include "launch/files/file_facts.h"
#include "launch/network/network.h"
#include "launch/supervise/supervisor.h"
#include "supervised_hosts.h"
#include "support/catch.h"
#include "support/fake_transport.h"
#include "support/text_tools.h"

using namespace dslaunch;
using namespace dslaunch::launch;
using namespace dslaunch::test;

namespace {

// Returns the facts of host i < 250: eth0 10.0.0.(i+1), eth1 10.1.0.(i+1).
MachineFacts facts_of(size_t host) {
    MachineFacts facts;
    facts.machine_id = "machine " + std::to_string(host);
    facts.glibc = "9.9";
    facts.driver_version = "550.1";
    for (const int network : {0, 1}) {
        InterfaceAddress entry;
        entry.interface = "eth" + std::to_string(network);
        entry.address = fmt::format("10.{}.{}.{}", network, host / 250, host % 250 + 1);
        entry.up = true;
        facts.addresses.push_back(entry);
    }
    return facts;
}

// Hosts whose networks and facts a test chooses.
class Cluster {
  public:
    std::function<MachineFacts(size_t)> facts = facts_of;
    // Returns the error with which FROM fails to reach ADDRESS; empty: FROM reaches it.
    std::function<std::string(size_t from, const std::string& address)> error =
        [](size_t, const std::string&) { return std::string(); };
    int64_t clock_offset_ns = 0;
    std::vector<EnvironmentList> environments = std::vector<EnvironmentList>(8);
    std::string hash;         // hash of the agents' program; empty: computed for each
    std::string chosen;       // address that node 0 was told to keep
    int probes = 0;           // number of requests that node 0 got
    size_t targets_most = 0;  // targets in the largest request

    FakeTransport::Agent agent() {
        return
            [this](FakeTransport& t, size_t host, const Frame& frame) { answer(t, host, frame); };
    }

  private:
    void answer(FakeTransport& t, size_t host, const Frame& frame) {
        switch (frame.kind) {
            case FrameKind::kHello: {
                AgentHello hello;
                hello.binary_hash = hash.empty() ? own_binary_hash() : hash;
                hello.arrival_address = facts(host).addresses.at(0).address;
                t.say(host, FrameKind::kMachineFacts, encode(facts(host)));
                return t.say(host, FrameKind::kAgentHello, encode(hello));
            }
            case FrameKind::kListen: {
                ListenReply reply;
                const auto request = decode<ListenRequest>(frame.payload);
                for (const std::string& address : request.addresses) {
                    const std::string interface = address.starts_with("10.1.") ? "eth1" : "eth0";
                    reply.places.push_back({address, address, interface, 4711, ""});
                }
                reply.clock_ns = std::chrono::duration_cast<std::chrono::nanoseconds>(
                                     std::chrono::system_clock::now().time_since_epoch())
                                     .count() +
                                 (host == 1 ? clock_offset_ns : 0);
                return t.say(host, FrameKind::kListening, encode(reply));
            }
            case FrameKind::kProbe: {
                if (host == 0) ++probes;
                ProbeReply reply;
                const auto request = decode<ProbeRequest>(frame.payload);
                targets_most = std::max(targets_most, request.targets.size());
                for (const auto& target : request.targets) {
                    const size_t network = target.address.starts_with("10.1.") ? 1 : 0;
                    const InterfaceAddress own = facts(host).addresses.at(network);
                    reply.results.push_back({target.node, target.address, own.address,
                                             own.interface, error(host, target.address)});
                }
                return t.say(host, FrameKind::kProbed, encode(reply));
            }
            case FrameKind::kChooseNetwork:
                if (host == 0) chosen = decode<ChooseRequest>(frame.payload).address;
                return;
            case FrameKind::kStart: {
                const auto request = decode<StartRequest>(frame.payload);
                environments.at(host) = request.defaults;
                for (const auto& variable : request.workers.at(0).environment)
                    environments.at(host).push_back(variable);
                for (const auto& variable : request.workers.at(0).place.variables())
                    environments.at(host).push_back(variable);
                WorkerExited exited;
                exited.rank = request.workers[0].place.rank;
                return t.say(host, FrameKind::kExited, encode(exited));
            }
            case FrameKind::kStop:
                return t.say(host, FrameKind::kGone);
            default:
                return;
        }
    }
};

std::string refusal(const JobSpec& spec, Cluster& cluster, ExitCode code) {
    FakeTransport transport(cluster.agent());
    const std::string message = error_of(code, [&] { (void)run(spec, transport); });
    CHECK_FALSE(transport.was_sent(FrameKind::kStart));
    return message;
}

// Returns the last value, which counts for the worker too.
std::string value_of(const EnvironmentList& environment, const std::string& name) {
    std::string value = "(unset)";
    for (const auto& [known, text] : environment) {
        if (known == name) value = text;
    }
    return value;
}

}  // namespace

TEST_CASE("ranks are told the address and the interface of the network that was found") {
    struct Row {
        const char* closed;  // network between hosts 1 and 2
        const char* address;
        const char* interface;
        int probes;  // 2: the likely network fails, and all are probed
    };
    const Row rows[] = {{"none", "10.0.0.1", "eth0", 1}, {"10.0.", "10.1.0.1", "eth1", 2}};
    for (const Row& row : rows) {
        Cluster cluster;
        cluster.error = [&](size_t from, const std::string& address) {
            return from == 2 && address.starts_with(row.closed) && address.ends_with(".2")
                       ? "Connection refused"
                       : "";
        };
        FakeTransport transport(cluster.agent());
        JobSpec spec = job_on(3, 1);
        spec.environment.set = {{"GLOO_SOCKET_IFNAME", "mine"}};
        CHECK(run(spec, transport).exit_code == 0);
        CHECK(cluster.chosen == row.address);
        CHECK(cluster.probes == row.probes);
        for (const size_t host : {0, 1, 2}) {
            const EnvironmentList& environment = cluster.environments[host];
            CHECK(value_of(environment, "MASTER_ADDR") == row.address);
            CHECK(value_of(environment, "MASTER_PORT") == "4711");
            CHECK(value_of(environment, "NCCL_SOCKET_IFNAME") == std::string("=") + row.interface);
            CHECK(value_of(environment, "GLOO_SOCKET_IFNAME") == "mine");
        }
    }
}

TEST_CASE("node 0 of a large job tries the others in portions, and all of them") {
    constexpr size_t kHosts = kProbeTargetsMax + 100;
    Cluster cluster;
    cluster.environments.resize(kHosts);
    cluster.hash = own_binary_hash();
    size_t reached = 0;
    cluster.error = [&](size_t from, const std::string&) {
        if (from == 0) ++reached;
        return std::string();
    };
    FakeTransport transport(cluster.agent());
    CHECK(run(job_on(kHosts, 1), transport).exit_code == 0);
    CHECK(cluster.targets_most == kProbeTargetsMax);
    CHECK(cluster.probes == 2);
    CHECK(reached == kHosts - 1);
}

TEST_CASE("one host tries nothing and is told no interface") {
    Cluster cluster;
    FakeTransport transport(cluster.agent());
    CHECK(run(job_on(1, 1), transport).exit_code == 0);
    CHECK(cluster.chosen == "127.0.0.1");
    CHECK(cluster.probes == 0);
    CHECK(value_of(cluster.environments[0], "NCCL_SOCKET_IFNAME") == "(unset)");
}

TEST_CASE("hosts without a common network are told apart before anything starts") {
    Cluster cluster;
    cluster.error = [](size_t from, const std::string&) {
        return from == 1 ? "No route to host" : "";
    };
    const std::string message = refusal(job_on(3, 1), cluster, ExitCode::kHosts);
    CHECK_THAT(message,
               Catch::Contains("no network connects the hosts") &&
                   Catch::Contains("--master_addr") &&
                   Catch::Contains("n1 (from eth0) cannot reach n0's 10.0.0.1: No route") &&
                   Catch::Contains("n1 (from eth1) cannot reach n0's 10.1.0.1: No route"));
    cluster.facts = [](size_t host) {
        MachineFacts facts = facts_of(host);
        if (host == 2) facts.addresses.resize(1), facts.addresses[0].up = false;
        if (host == 2) facts.addresses[0].address = "127.0.0.1", facts.addresses[0].loopback = true;
        return facts;
    };
    CHECK_THAT(refusal(job_on(3, 1), cluster, ExitCode::kSetup),
               Catch::Contains("1 of 3 hosts") &&
                   Catch::Contains("n2: other hosts can reach none of its addresses"));
}

TEST_CASE("machines that cannot run dsworker together are named, for a .pt target only") {
    Cluster cluster;
    cluster.facts = [](size_t host) {
        MachineFacts facts = facts_of(host);
        if (host == 1) facts.driver_version = "535.7";
        if (host == 2) facts.glibc = "2.1";
        return facts;
    };
    JobSpec spec = job_on(4, 1, TargetKind::kModel);
    spec.required_files = {"/proc/self/exe"};  // stands for dsworker
    const std::string message = refusal(spec, cluster, ExitCode::kHosts);
    CHECK_THAT(message, Catch::Contains("1 of 4 hosts") &&
                            Catch::Contains("n2: its C library is 2.1, but dsworker needs 2."));
    // Ranks on CPUs need no driver. The facts are not checked for a program.
    CHECK_THAT(message, !Catch::Contains("535.7"));
    FakeTransport transport(cluster.agent());
    CHECK(run(job_on(4, 1), transport).exit_code == 0);
}

TEST_CASE("an agent that gives up while its workers start ends the job") {
    Cluster cluster;
    const FakeTransport::Agent good = cluster.agent();
    FakeTransport transport([&](FakeTransport& t, size_t host, const Frame& frame) {
        if (frame.kind != FrameKind::kStart || host != 1) return good(t, host, frame);
        t.say(1, FrameKind::kProblem,
              encode(AgentProblem{static_cast<uint32_t>(ExitCode::kSetup), "no memory for it"}));
        t.say(1, FrameKind::kGone);
    });
    const AttemptResult result = run(job_on(2, 1), transport);
    CHECK(result.exit_code == static_cast<int>(ExitCode::kHosts));
    CHECK_THAT(result.report, Catch::Contains("host n1 is lost: no memory for it"));
}
