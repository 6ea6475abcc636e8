// Commands over hosts, with made-up agents.
#include "launch/fleet/fleet.h"

#include <sys/utsname.h>

#include <csignal>

#include "base/fd.h"
#include "launch/fleet/host_question.h"
#include "support/catch.h"
#include "support/fake_transport.h"

using namespace dslaunch;
using namespace dslaunch::launch;
using namespace dslaunch::test;
using namespace std::chrono_literals;

namespace {

AgentHello hello_of(uint32_t protocol = kAgentProtocolVersion) {
    AgentHello hello;
    hello.protocol_version = protocol;
    hello.version = "0.0";
    hello.binary_hash = "same";
    return hello;
}

// Returns an agent that says hello, reports DEVICES, answers kStop, and gives every other frame to
// REST.
FakeTransport::Agent agent(FakeTransport::Agent rest, const DeviceUseReport& devices = {}) {
    return [rest, devices](FakeTransport& transport, size_t host, const Frame& frame) {
        if (frame.kind == FrameKind::kDevices)
            return transport.say(host, FrameKind::kDeviceReport, encode(devices));
        if (frame.kind == FrameKind::kHello) {
            return transport.say(host, FrameKind::kAgentHello, encode(hello_of()));
        }
        if (frame.kind == FrameKind::kStop) return transport.say(host, FrameKind::kGone);
        rest(transport, host, frame);
    };
}

const std::vector<HostAddress> kThree = {{"n0", "", 0, ""}, {"n1", "", 0, ""}, {"n2", "", 0, ""}};

void exit_with(FakeTransport& transport, size_t host, int64_t status, int64_t signal_number) {
    WorkerExited exited;
    exited.pid = 7;
    exited.exit_status = status;
    exited.signal_number = signal_number;
    transport.say(host, FrameKind::kExited, encode(exited));
}

}  // namespace

TEST_CASE("a bad host has its own error and keeps no other from serving") {
    const UniqueFd signals = no_signals();
    for (const size_t piece : {size_t{1}, size_t{1} << 20}) {
        FakeTransport transport(
            [](FakeTransport& t, size_t host, const Frame& frame) {
                if (frame.kind != FrameKind::kHello) return;
                if (host == 0) t.say(0, FrameKind::kAgentHello, encode(hello_of()));
                if (host == 1) t.say(1, FrameKind::kAgentHello, encode(hello_of(99)));
                if (host == 2) t.end(2, "cannot connect", -1);
            },
            piece);
        Fleet fleet(kThree, transport, signals.get());
        fleet.connect(5s, true);
        CHECK(fleet.nodes()[0].serves());
        CHECK(fleet.nodes()[1].error.find("uses protocol 99") != std::string::npos);
        CHECK(fleet.nodes()[2].error == "cannot connect");
        CHECK(fleet.bad_count() == 2);
    }
}

TEST_CASE("who says nothing in time, nonsense, or has no program is told apart") {
    const UniqueFd signals = no_signals();
    FakeTransport transport([](FakeTransport& t, size_t host, const Frame& frame) {
        if (frame.kind != FrameKind::kHello) return;
        if (host == 1) t.say_bytes(1, std::string(6, '\xff'));
        if (host == 2) {
            t.complain(2, "sh: dslaunch: not found");
            t.end(2, "", 127);
        }
    });
    Fleet fleet(kThree, transport, signals.get());
    fleet.connect(50ms, false);
    CHECK(fleet.nodes()[0].error == "no agent answered within 0.05 s");
    CHECK(fleet.nodes()[1].misunderstood);
    CHECK(fleet.nodes()[2].exit_status == 127);
    CHECK(fleet.nodes()[2].error.find("dslaunch push") != std::string::npos);
    CHECK(fleet.nodes()[2].error.find("not found") != std::string::npos);
}

TEST_CASE("a host with another kind of processor is told apart, with or without its own dslaunch") {
    const UniqueFd signals = no_signals();
    utsname own{};
    REQUIRE(::uname(&own) == 0);
    FakeTransport transport([&](FakeTransport& t, size_t host, const Frame& frame) {
        if (frame.kind == FrameKind::kStop) return t.say(host, FrameKind::kGone);
        if (frame.kind != FrameKind::kHello) return;
        if (host == 0) {
            t.complain(0, "sh: 1: exec: /opt/bin/dslaunch: Exec format error");
            return t.end(0, "", 126);
        }
        if (host == 1) {
            t.complain(1, "sh: 1: exec: /opt/bin/dslaunch: Permission denied");
            return t.end(1, "", 126);
        }
        AgentHello hello = hello_of();
        hello.processor = "riscv64";
        t.say(2, FrameKind::kAgentHello, encode(hello));
    });
    Fleet fleet(kThree, transport, signals.get());
    fleet.connect(5s, false);
    CHECK(fleet.nodes()[0].has_foreign_program());
    CHECK_THAT(fleet.nodes()[0].error, Catch::Contains("another kind of processor"));
    CHECK_FALSE(fleet.nodes()[1].has_foreign_program());
    CHECK_THAT(fleet.nodes()[1].error, Catch::Contains("Permission denied"));
    CHECK(fleet.nodes()[2].serves());
    CHECK_THAT(describe_other_processor(fleet.nodes()[2].hello),
               Catch::Contains("its processor and its dslaunch are riscv64") &&
                   Catch::Contains(own.machine));
    AgentHello same = hello_of();
    CHECK(describe_other_processor(same).empty());  // not known
    same.processor = own.machine;
    CHECK(describe_other_processor(same).empty());
    fleet.stop();
}

TEST_CASE("exec tells each host's own end: exit code, signal, time, loss") {
    const UniqueFd signals = no_signals();
    FakeTransport transport(agent([](FakeTransport& t, size_t host, const Frame& frame) {
        if (frame.kind != FrameKind::kStart) return;
        CHECK(decode<StartRequest>(frame.payload).workers.front().command.front() == "program");
        t.say(host, FrameKind::kOutput, encode(WorkerOutput{0, OutputStream::kStdout, "line\n"}));
        if (host == 0) exit_with(t, 0, 3, 0);
        if (host == 1) exit_with(t, 1, 0, SIGKILL);
    }));
    Fleet fleet(kThree, transport, signals.get());
    fleet.connect(5s, false);
    ExecRequest request;
    request.command = {"program"};
    request.time_max = 50ms;
    const auto results = exec_on(fleet, request);
    fleet.stop();
    REQUIRE(results.size() == 3);
    CHECK(results[0].code() == 3);
    CHECK(results[1].code() == 128 + SIGKILL);
    CHECK(results[2].code() == 69);
    CHECK(results[2].error == "did not end within 0.05 s");
    CHECK(results[0].output == "line\n");
    CHECK(transport.was_sent(FrameKind::kStop));
}

TEST_CASE("exec keeps no more output of a host than it may, and says so") {
    const UniqueFd signals = no_signals();
    FakeTransport transport(agent([](FakeTransport& t, size_t host, const Frame& frame) {
        if (frame.kind != FrameKind::kStart) return;
        for (int i = 0; i < 3; ++i) {
            t.say(host, FrameKind::kOutput,
                  encode(WorkerOutput{0, OutputStream::kStdout, "12345\n"}));
        }
        exit_with(t, host, 0, 0);
    }));
    Fleet fleet({kThree.front()}, transport, signals.get());
    fleet.connect(5s, false);
    ExecRequest request;
    request.command = {"program"};
    request.output_bytes_max = 8;
    const auto results = exec_on(fleet, request);
    CHECK(results[0].output == "12345\n12");
    CHECK(results[0].output_was_cut);
}

TEST_CASE("a clock that is wrong by more than can be measurement is a fault") {
    struct Row {
        std::chrono::milliseconds offset;
        bool bad;
    };
    for (const Row& row : {Row{0ms, false}, Row{1900ms, false}, Row{-1900ms, false},
                           Row{5000ms, true}, Row{-5000ms, true}}) {
        const UniqueFd signals = no_signals();
        FakeTransport transport(agent([&](FakeTransport& t, size_t host, const Frame& frame) {
            if (frame.kind != FrameKind::kReportRequest) return;
            NodeReport report = report_node(decode<ReportRequest>(frame.payload));
            report.clock_ns += std::chrono::nanoseconds(row.offset).count();
            t.say(host, FrameKind::kNodeReport, encode(report));
        }));
        Fleet fleet({kThree.front()}, transport, signals.get());
        fleet.connect(5s, true);
        const auto states = check_hosts(fleet, {"/", true, "same"});
        INFO(row.offset.count());
        CHECK(states[0].faults.size() == (row.bad ? 1 : 0));
        if (row.bad) CHECK(states[0].faults[0].find("clock") != std::string::npos);
    }
}

TEST_CASE("a GPU whose memory had errors makes its host bad, and who holds it is told") {
    const UniqueFd signals = no_signals();
    DeviceUseReport devices;
    devices.gpus = {{.index = 0, .ecc_errors = 0}, {.index = 1, .ecc_errors = 2, .nvlinks = 18}};
    devices.processes.emplace_back().holds = {{1, 7, 4096}};
    FakeTransport transport(agent(
        [&](FakeTransport& t, size_t host, const Frame& frame) {
            if (frame.kind != FrameKind::kReportRequest) return;
            t.say(host, FrameKind::kNodeReport,
                  encode(report_node(decode<ReportRequest>(frame.payload))));
        },
        devices));
    Fleet fleet({kThree.front()}, transport, signals.get());
    fleet.connect(5s, true);
    const auto states = check_hosts(fleet, {"/", true, "same"});
    REQUIRE(states[0].faults.size() == 1);
    CHECK_THAT(states[0].faults[0],
               Catch::StartsWith("GPU 1: ECC could not correct 2 errors in its memory"));
    CHECK(states[0].devices.gpus == devices.gpus);
    REQUIRE(states[0].devices.processes.size() == 1);
    CHECK(states[0].devices.processes[0].holds == devices.processes[0].holds);
}

TEST_CASE("the clock's bound is half the round trip, whenever the answer was written") {
    using std::chrono::nanoseconds;
    for (const int64_t written : {100, 150, 200}) {
        const ClockOffset clock =
            clock_offset(nanoseconds(100), nanoseconds(200), nanoseconds(written + 7000));
        CHECK(clock.bound.count() == 51);
        CHECK(std::abs(clock.offset.count() - 7000) <= clock.bound.count());
    }
}

TEST_CASE("a host with another dslaunch, or without a directory that is needed, is bad") {
    const UniqueFd signals = no_signals();
    FakeTransport transport(agent([](FakeTransport& t, size_t host, const Frame& frame) {
        if (frame.kind != FrameKind::kReportRequest) return;
        t.say(host, FrameKind::kNodeReport,
              encode(report_node(decode<ReportRequest>(frame.payload))));
    }));
    Fleet fleet({kThree.front()}, transport, signals.get());
    fleet.connect(5s, true);
    for (const bool is_needed : {true, false}) {
        const auto states = check_hosts(fleet, {"/proc/no/such/folder", is_needed, "another"});
        REQUIRE(states[0].faults.size() == (is_needed ? 2 : 1));
        CHECK(states[0].faults[0].find("differs from this machine's dslaunch") !=
              std::string::npos);
        if (is_needed)
            CHECK(states[0].faults[1] ==
                  "the directory /proc/no/such/folder: No such file or directory (ENOENT)");
        REQUIRE(states[0].report);
        CHECK(states[0].report->disk_error == "No such file or directory (ENOENT)");
    }
}
