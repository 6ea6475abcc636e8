// Hosts that are lost while their ranks run: who is to blame, and when the next attempt may start.
#include "launch/supervise/supervisor.h"

#include "supervised_hosts.h"

using namespace dslaunch;
using namespace dslaunch::launch;
using namespace dslaunch::test;

TEST_CASE("a rank that was killed is to blame although it is heard of last") {
    // Rank 2, its peer, ends first. The killed rank's own end is reported later, when all ranks are
    // already being ended.
    const bool told = GENERATE(false, true);
    const auto peer_lost = static_cast<int64_t>(ExitCode::kPeerLost);
    const auto at_start = [&](FakeTransport& t, size_t host) {
        if (host == 1) t.say(1, FrameKind::kExited, encode(exited(2, peer_lost)));
    };
    const auto agent = [&](FakeTransport& t, size_t host, const Frame& frame) {
        if (host == 1 && frame.kind == FrameKind::kStop) {
            WorkerExited killed = exited(3, 0, SIGKILL);
            killed.told_to_end = told;
            t.say(1, FrameKind::kExited, encode(killed));
        }
        good_agent(at_start)(t, host, frame);
    };
    FakeTransport transport(agent);
    const AttemptResult result = run(two_per_node(2), transport);
    if (told) {
        CHECK(result.exit_code == peer_lost);
        CHECK_THAT(result.report, Catch::Contains("rank 2 on host n1 failed first"));
    } else {
        CHECK(result.exit_code == 128 + SIGKILL);
        CHECK_THAT(result.report, Catch::Contains("rank 3 on host n1 failed first: killed by"));
    }
}

TEST_CASE("a host whose end is heard of long after its peers' is to blame") {
    // The peers end when the host is gone. Its loss is noticed when it is asked.
    const auto peer_lost = static_cast<int64_t>(ExitCode::kPeerLost);
    const auto at_start = [&](FakeTransport& t, size_t host) {
        if (host == 1) t.say(1, FrameKind::kExited, encode(exited(2, peer_lost)));
    };
    const auto agent = [&](FakeTransport& t, size_t host, const Frame& frame) {
        if (host == 0 && frame.kind == FrameKind::kPing)
            return t.end(0, "its agent closed the connection", -1);
        good_agent(at_start)(t, host, frame);
    };
    FakeTransport transport(agent);
    const AttemptResult result = run(two_per_node(2), transport);
    CHECK(result.exit_code == static_cast<int>(ExitCode::kHosts));
    CHECK_THAT(result.report, Catch::Contains("host n0 is lost: its agent closed the connection"));
}

TEST_CASE("a host that goes away while its ranks run is named with its cause") {
    FakeTransport transport(good_agent([](FakeTransport& t, size_t host) {
        if (host == 1) t.end(1, "the connection was reset", -1);
    }));
    const AttemptResult result = run(two_per_node(2), transport);
    CHECK(result.exit_code == static_cast<int>(ExitCode::kHosts));
    CHECK(result.may_restart);
    CHECK_THAT(result.report, Catch::Contains("host n1 is lost: the connection was reset"));
}

TEST_CASE("the host of an agent that ends by itself is to blame, not the ranks that it ends") {
    FakeTransport transport(good_agent([](FakeTransport& t, size_t host) {
        if (host != 1) return;
        t.say(1, FrameKind::kProblem,
              encode(AgentProblem{static_cast<uint32_t>(ExitCode::kHosts), "its guard is gone"}));
        t.say(1, FrameKind::kExited, encode(exited(2, 0, SIGKILL)));
        t.say(1, FrameKind::kExited, encode(exited(3, 0, SIGKILL)));
        t.say(1, FrameKind::kGone);
    }));
    const AttemptResult result = run(two_per_node(2), transport);
    CHECK(result.exit_code == static_cast<int>(ExitCode::kHosts));
    CHECK(result.may_restart);
    CHECK_THAT(result.report, Catch::Contains("host n1 is lost: its guard is gone"));
}

TEST_CASE("a host that speaks for a rank of another one is lost, and the rank is not believed") {
    WorkerStarted started;
    started.rank = 2;
    const Frame lies[] = {
        {FrameKind::kStarted, encode(started)},
        {FrameKind::kOutput, encode(WorkerOutput{2, OutputStream::kStdout, "a lie\n"})},
        {FrameKind::kControl,
         encode(WorkerControl{2, static_cast<uint32_t>(ControlKind::kProgress), "a lie"})},
        {FrameKind::kExited, encode(exited(2, 0))},
    };
    for (const Frame& lie : lies) {
        CAPTURE(static_cast<int>(lie.kind));
        FakeTransport transport(good_agent([&](FakeTransport& agents, size_t host) {
            // n0 reports on rank 2, which is on n1.
            if (host == 0) agents.say(host, lie.kind, lie.payload);
            all_end_well(agents, host);
        }));
        const AttemptResult result = run(two_per_node(2), transport);
        CHECK(result.exit_code == 67);
        CHECK_THAT(
            result.report,
            Catch::Contains("the agent of another host reported rank 2, which runs on host n1"));
    }
}

TEST_CASE("ranks start when the lease of a host that was cut off is over, at once if it is back") {
    const JobSpec spec = two_per_node(1);
    for (const std::string machine : {"gone", "back"}) {
        // If a start waited for the lease of a machine that is back, this would be a hang.
        const auto lease_over_at =
            Steady::now() + std::chrono::milliseconds(machine == "gone" ? 300 : kHangMs);
        std::optional<std::chrono::steady_clock::time_point> started_at;
        const auto agent = good_agent([&](FakeTransport& agents, size_t host) {
            started_at = Steady::now();
            all_end_well(agents, host);
        });
        FakeTransport transport([&](FakeTransport& agents, size_t host, const Frame& frame) {
            if (frame.kind != FrameKind::kHello) return agent(agents, host, frame);
            AgentHello hello = good_hello();
            hello.host_name = "back";
            agents.say(host, FrameKind::kAgentHello, encode(hello));
        });
        const AttemptResult result =
            run(spec, transport, {1, 1}, {CutOffHost{"n7", machine, lease_over_at}});
        CHECK(result.exit_code == 0);
        REQUIRE(started_at);
        CHECK((*started_at >= lease_over_at) == (machine == "gone"));
    }
}

TEST_CASE("a host is cut off when its connection ends with neither farewell nor status") {
    for (const int exit_status : {-1, 137}) {
        FakeTransport transport(good_agent([&](FakeTransport& agents, size_t host) {
            if (host == 0) agents.end(host, "the connection is lost", exit_status);
        }));
        const AttemptResult result = run(two_per_node(2), transport);
        CHECK(result.exit_code == 67);
        REQUIRE(result.cut_off.size() == (exit_status < 0 ? 1U : 0U));
        if (exit_status < 0) CHECK(result.cut_off[0].name == "n0");
    }
}

TEST_CASE("a machine came again only if its agent sees the processes of the one before") {
    // Two pods on the network of their host: one boot, one network, two namespaces of processes.
    for (const std::string pod : {"pid:[1]", "pid:[2]"}) {
        std::string process_namespace = "pid:[1]";
        std::optional<std::chrono::steady_clock::time_point> started_at;
        const auto agent_of = [&](const std::function<void(FakeTransport&, size_t)>& after_start) {
            return [&, agent = good_agent(after_start)](FakeTransport& agents, size_t host,
                                                        const Frame& frame) {
                if (frame.kind == FrameKind::kHello) {
                    MachineFacts facts;
                    facts.machine_id = "boot net:[1]";
                    facts.process_namespace = process_namespace;
                    agents.say(host, FrameKind::kMachineFacts, encode(facts));
                }
                agent(agents, host, frame);
            };
        };
        FakeTransport losing(agent_of([](FakeTransport& agents, size_t host) {
            agents.end(host, "the connection is lost", -1);
        }));
        const JobSpec spec = two_per_node(1);
        std::vector<CutOffHost> cut_off = run(spec, losing).cut_off;
        REQUIRE(cut_off.size() == 1);
        cut_off[0].lease_over_at =
            std::chrono::steady_clock::now() + std::chrono::milliseconds(300);
        process_namespace = pod;
        FakeTransport next(agent_of([&](FakeTransport& agents, size_t host) {
            started_at = std::chrono::steady_clock::now();
            all_end_well(agents, host);
        }));
        CHECK(run(spec, next, {1, 1}, cut_off).exit_code == 0);
        REQUIRE(started_at);
        INFO(pod);
        CHECK((*started_at >= cut_off[0].lease_over_at) == (pod == "pid:[2]"));
    }
}

// A negative control was made by hand: without Supervisor::end_earlier_attempts, n0 starts its
// ranks at once.
TEST_CASE("no host starts ranks before every host has ended those of the attempts before") {
    WhenQuiet* way = nullptr;
    bool n1_has_answered = false;
    std::vector<size_t> asked;
    const auto good = good_agent([&](FakeTransport& t, size_t host) {
        CHECK(n1_has_answered);
        all_end_well(t, host);
    });
    FakeTransport agents([&](FakeTransport& t, size_t host, const Frame& frame) {
        if (frame.kind != FrameKind::kStopJob) return good(t, host, frame);
        const auto request = decode<StopJobRequest>(frame.payload);
        CHECK(request.launch_id == "launch-1");
        CHECK(request.before_attempt == 3);
        asked.push_back(host);
        if (host == 0) return t.say(0, FrameKind::kJobStopped, encode(StopJobReply{}));
        // n1 takes longer than anything that n0 may do meanwhile.
        way->then([&] {
            n1_has_answered = true;
            t.say(1, FrameKind::kJobStopped, encode(StopJobReply{}));
        });
    });
    WhenQuiet transport(agents);
    way = &transport;
    JobSpec spec = two_per_node(2);
    spec.launch_id = "launch-1";
    CHECK(run(spec, transport, {2, 3}).exit_code == 0);
    CHECK(asked == std::vector<size_t>{0, 1});
}

TEST_CASE("a first attempt asks nobody about attempts before it") {
    FakeTransport transport(good_agent(all_end_well));
    CHECK(run(two_per_node(2), transport).exit_code == 0);
    CHECK_FALSE(transport.was_sent(FrameKind::kStopJob));
}

TEST_CASE("ranks know the number of their attempt, another than that of restarts") {
    const auto good = good_agent(all_end_well);
    int told = 0;
    FakeTransport transport([&](FakeTransport& t, size_t host, const Frame& frame) {
        if (frame.kind == FrameKind::kStart) {
            for (const auto& worker : decode<StartRequest>(frame.payload).workers) {
                for (const auto& [name, value] : worker.place.variables()) {
                    told += name == "DSL_ATTEMPT" && value == "3" ? 1 : 0;
                    told += name == "TORCHELASTIC_RESTART_COUNT" && value == "2" ? 1 : 0;
                }
            }
        }
        good(t, host, frame);
    });
    CHECK(run(two_per_node(2), transport, {2, 3}).exit_code == 0);
    CHECK(told == 2 * 4);
}

TEST_CASE("processes of an attempt before that do not die are named, and nothing starts") {
    const auto good = good_agent(all_end_well);
    FakeTransport transport([&](FakeTransport& t, size_t host, const Frame& frame) {
        if (frame.kind != FrameKind::kStopJob || host == 0) return good(t, host, frame);
        StopJobReply reply;
        reply.processes = {{{71, 1}, "sh", "", true}, {{72, 1}, "python\x1b", "", false}};
        t.say(1, FrameKind::kJobStopped, encode(reply));
    });
    const std::string message =
        refusal(two_per_node(2), transport, ExitCode::kHosts, AttemptNumber{1, 1});
    CHECK_THAT(message,
               Catch::Contains("1 of 2 hosts") &&
                   Catch::Contains("n1: processes of an earlier attempt cannot be killed: 72 "
                                   "(python\\x1b);"));
    CHECK_FALSE(transport.was_sent(FrameKind::kStart));
}
