#include "launch/supervise/supervisor.h"

#include "supervised_hosts.h"

using namespace dslaunch;
using namespace dslaunch::launch;
using namespace dslaunch::test;

TEST_CASE("a job whose ranks end well ends with 0, whatever pieces the frames come in") {
    for (const size_t piece : {size_t{1}, size_t{7}, size_t{1} << 20}) {
        FakeTransport transport(good_agent(all_end_well), piece);
        const AttemptResult result = run(two_per_node(3), transport);
        INFO(result.report);
        CHECK(result.exit_code == 0);
        CHECK(result.report.empty());
        CHECK(transport.names == std::vector<std::string>{"n0", "n1", "n2"});
    }
}

TEST_CASE("every bad host is named with its cause, and nothing starts") {
    struct Row {
        FakeTransport::Agent agent;
        std::vector<std::string> words;
    };
    const auto is_hello = [](const Frame& frame) { return frame.kind == FrameKind::kHello; };
    const Row rows[] = {
        {[=](FakeTransport& t, size_t host, const Frame& frame) {
             if (is_hello(frame)) t.end(host, "cannot connect: Connection refused", -1);
         },
         {"2 of 2 hosts", "n0, n1: cannot connect", "`dslaunch hosts trust`"}},
        {[=](FakeTransport& t, size_t host, const Frame& frame) {
             if (is_hello(frame)) t.end(host, "", 127);
         },
         {"n0, n1: there is no dslaunch at /"}},
        {[=](FakeTransport& t, size_t host, const Frame& frame) {
             if (!is_hello(frame)) return;
             t.complain(host, "disk quota \x1b[31mexceeded");
             t.end(host, "", 3);
         },
         {"n1: its agent ended with 3: disk quota \\x1b[31mexceeded"}},
        {[=](FakeTransport& t, size_t host, const Frame& frame) {
             AgentHello hello = good_hello();
             hello.version = "9.9";
             if (host == 1) hello.binary_hash = std::string(64, '0');
             if (is_hello(frame)) t.say(host, FrameKind::kAgentHello, encode(hello));
         },
         {"1 of 2 hosts", "n1: its dslaunch (version 9.9) differs"}},
        {[=](FakeTransport& t, size_t host, const Frame& frame) {
             AgentHello hello = good_hello();
             hello.protocol_version = kAgentProtocolVersion + 1;
             if (is_hello(frame)) t.say(host, FrameKind::kAgentHello, encode(hello));
         },
         {"2 of 2 hosts", "uses protocol 2"}},
        {[=](FakeTransport& t, size_t host, const Frame& frame) {
             if (is_hello(frame)) t.say_bytes(host, std::string("\xff\xff\xff\x7f\x01\x00", 6));
         },
         {"n0, n1: its agent sent data that cannot be read"}},
        {[=](FakeTransport& t, size_t host, const Frame& frame) {
             if (is_hello(frame)) t.say(host, FrameKind::kStop);
         },
         {"its agent sent data that cannot be read"}},
        {[=](FakeTransport& t, size_t host, const Frame& frame) {
             // Half a frame, then the end of the connection.
             if (!is_hello(frame)) return;
             t.say_bytes(host,
                         encode(Frame{FrameKind::kAgentHello, encode(good_hello())}).substr(0, 9));
             t.end(host, "the connection was closed", -1);
         },
         {"n0, n1: the connection was closed"}},
    };
    for (const Row& row : rows) {
        FakeTransport transport([&row](FakeTransport& t, size_t host, const Frame& frame) {
            if (frame.kind == FrameKind::kStop) return t.say(host, FrameKind::kGone);
            row.agent(t, host, frame);
        });
        const std::string message = refusal(two_per_node(2), transport, ExitCode::kHosts);
        for (const std::string& word : row.words) CHECK_THAT(message, Catch::Contains(word));
        CHECK_FALSE(transport.was_sent(FrameKind::kStart));
    }
}

TEST_CASE("an agent that never answers is given up after the time for it, and its host is named") {
    JobSpec spec = two_per_node(2);
    spec.connect_max = std::chrono::milliseconds(20);
    FakeTransport transport([](FakeTransport& t, size_t host, const Frame& frame) {
        if (host == 0) good_agent(all_end_well)(t, host, frame);
    });
    const std::string message = refusal(spec, transport, ExitCode::kHosts);
    CHECK_THAT(message, Catch::Contains("1 of 2 hosts"));
    CHECK_THAT(message, Catch::Contains("n1: no agent answered within 0.02 s"));
    CHECK(transport.abandoned == std::vector<size_t>{1});
}

TEST_CASE("a file that differs on one host is named, and --no_ssh_check does not compare") {
    TemporaryFolder folder;
    const std::string path = folder.path() + "/config";
    std::ofstream(path) << "here";
    JobSpec spec = two_per_node(2);
    spec.required_files = {path};
    const auto agent = [&](FakeTransport& t, size_t host, const Frame& frame) {
        if (frame.kind != FrameKind::kCheck) return good_agent(all_end_well)(t, host, frame);
        FileFacts facts = look_at_file(path, true, [] {});
        if (host == 1) facts.hash = std::string(64, 'a');
        t.say(host, FrameKind::kChecked, encode(CheckReply{{facts}}));
    };
    FakeTransport differing(agent);
    const std::string message = refusal(spec, differing, ExitCode::kHosts);
    CHECK_THAT(message, Catch::Contains("1 of 2 hosts"));
    CHECK_THAT(message, Catch::Contains("n1: " + path + ": same size, but different content"));
    spec.check_hosts = false;
    FakeTransport unasked(agent);
    CHECK(run(spec, unasked).exit_code == 0);
    CHECK_FALSE(unasked.was_sent(FrameKind::kCheck));
}

TEST_CASE("a rank that fails before others ends the job under its own code and name") {
    FakeTransport transport(good_agent([](FakeTransport& t, size_t host) {
        if (host != 1) return;
        t.say(1, FrameKind::kOutput,
              encode(WorkerOutput{3, OutputStream::kStderr, "about to fail\n"}));
        t.say(1, FrameKind::kExited, encode(exited(3, 5)));
    }));
    const AttemptResult result = run(two_per_node(2), transport);
    CHECK(result.exit_code == 5);
    CHECK(result.may_restart);
    CHECK_FALSE(result.port_was_taken);
    CHECK_THAT(result.report, Catch::Contains("rank 3 on host n1 failed first: exit code 5"));
    CHECK_THAT(result.report, Catch::Contains("    about to fail\n"));
    CHECK(transport.was_sent(FrameKind::kStop));
}

TEST_CASE("a rank that is killed with its whole Slurm step is not to blame, one alone is") {
    const bool whole_step = GENERATE(true, false);
    WhenQuiet* way = nullptr;
    FakeTransport agents(good_agent([&](FakeTransport& t, size_t host) {
        if (host != 1) return;
        t.say(1, FrameKind::kExited, encode(exited(3, 0, SIGKILL)));
        if (whole_step) way->then([&t] { t.end(1, "its agent closed the connection", -1); });
    }));
    WhenQuiet transport(agents);
    way = &transport;
    JobSpec spec = two_per_node(2);
    spec.transport = TransportKind::kSlurm;
    const AttemptResult result = run(spec, transport);
    if (whole_step) {
        CHECK(result.exit_code == static_cast<int>(ExitCode::kHosts));
        CHECK_THAT(result.report, Catch::Contains("host n1 is lost: its agent closed"));
    } else {
        CHECK(result.exit_code == 128 + SIGKILL);
        CHECK_THAT(result.report, Catch::Contains("rank 3 on host n1 failed first"));
    }
}

TEST_CASE("a scheduler that signals every agent asks once: the ranks may end by themselves") {
    int asked = 0;
    const auto agent = [&](FakeTransport& transport, size_t host, const Frame& frame) {
        if (frame.kind == FrameKind::kSignal) {
            ++asked;
            // The scheduler's signal reaches this agent only now.
            transport.say(host, FrameKind::kAskedToEnd, encode(SignalRequest{SIGTERM}));
            all_end_well(transport, host);
        }
        good_agent([](FakeTransport& t, size_t at) {
            t.say(at, FrameKind::kAskedToEnd, encode(SignalRequest{SIGTERM}));
        })(transport, host, frame);
    };
    FakeTransport transport(agent);
    const AttemptResult result = run(two_per_node(3), transport);
    CHECK(asked == 3);  // one request for each host, all complete
    CHECK(result.exit_code == static_cast<int>(ExitCode::kInterrupted));
    CHECK_FALSE(result.may_restart);
}

TEST_CASE("nonsense from an agent whose ranks run loses its host, not the launcher") {
    FakeTransport transport(good_agent([](FakeTransport& t, size_t host) {
        if (host == 0) t.say(0, FrameKind::kExited, encode(exited(77, 0)));  // there is no rank 77
    }));
    const AttemptResult result = run(two_per_node(2), transport);
    CHECK(result.exit_code == static_cast<int>(ExitCode::kHosts));
    CHECK_THAT(result.report,
               Catch::Contains("host n0 is lost: its agent sent data that cannot be read"));
    CHECK(transport.abandoned == std::vector<size_t>{0});
}

TEST_CASE("a worker's own message decides the code of a training job and is shown in lines") {
    FakeTransport transport(good_agent([](FakeTransport& t, size_t host) {
        if (host != 0) return;
        const AgentProblem failure{static_cast<uint32_t>(ExitCode::kInput),
                                   "2 problems:\na: \x1b missing\nb: too long"};
        t.say(0, FrameKind::kControl,
              encode(
                  WorkerControl{0, static_cast<uint32_t>(ControlKind::kFailure), encode(failure)}));
        t.say(0, FrameKind::kOutput,
              encode(WorkerOutput{0, OutputStream::kStderr,
                                  "12:00 error train: 2 problems:\na: \x1b missing\nb: too long\n"
                                  "something else\n"}));
        t.say(0, FrameKind::kExited, encode(exited(0, static_cast<int64_t>(ExitCode::kInput))));
    }));
    const AttemptResult result = run(two_per_node(1, TargetKind::kModel), transport);
    CHECK(result.exit_code == static_cast<int>(ExitCode::kInput));
    CHECK_THAT(result.report, Catch::Contains("dslaunch: error: 2 problems:\n  a: \\x1b missing\n"
                                              "  b: too long\n"));
}

TEST_CASE("a program whose port was taken may be started again on another, dsworker has its own") {
    const auto clash = [](FakeTransport& t, size_t host) {
        if (host != 0) return;
        t.say(0, FrameKind::kOutput,
              encode(WorkerOutput{0, OutputStream::kStderr,
                                  "OSError: [Errno 98] Address already in use\n"}));
        t.say(0, FrameKind::kExited, encode(exited(0, 1)));
    };
    for (const bool chosen_by_user : {false, true}) {
        JobSpec spec = two_per_node(1, TargetKind::kPython);
        if (chosen_by_user) spec.master_port = 4711;
        FakeTransport transport(good_agent(clash));
        CHECK(run(spec, transport).port_was_taken == !chosen_by_user);
    }
    FakeTransport transport(good_agent(clash));
    CHECK_FALSE(run(two_per_node(1, TargetKind::kModel), transport).port_was_taken);
}

TEST_CASE("the hosts' GPUs decide, and the hosts that lack some are named") {
    struct Row {
        DeviceRequest device;
        std::vector<int64_t> gpus;  // GPUs on each host; two workers on GPU 0 and 1 are planned
        std::string words;          // words of the refusal; empty: the job runs
        std::string devices;        // GPUs that the workers get then
    };
    const Row rows[] = {
        {DeviceRequest::kAuto, {2, 3}, "", "0,1"},
        {DeviceRequest::kAuto, {0, 0}, "", ""},
        {DeviceRequest::kAuto,
         {2, 0},
         "1 of 2 hosts:\n  n1: it has 0 GPUs, but 2 workers need GPUs ",
         ""},
        {DeviceRequest::kAuto, {1, 0}, "2 of 2 hosts:\n  n0: it has 1 GPU", ""},
        {DeviceRequest::kCuda, {0, 0}, "2 of 2 hosts", ""},
        {DeviceRequest::kCuda, {4, 1}, "1 of 2 hosts:\n  n1: it has 1 GPU", ""},
        {DeviceRequest::kCpu, {2, 0}, "", "0,1"},
    };
    for (const Row& row : rows) {
        JobSpec spec = two_per_node(2);
        spec.device = row.device;
        for (PlannedNode& node : spec.nodes)
            for (PlannedWorker& worker : node.workers) worker.environment.devices = "0,1";
        std::string devices;
        const FakeTransport::Agent good = good_agent(all_end_well);
        FakeTransport transport([&](FakeTransport& t, size_t host, const Frame& frame) {
            if (frame.kind == FrameKind::kHello) {
                AgentHello hello = good_hello();
                hello.gpus = row.gpus[host];
                return t.say(host, FrameKind::kAgentHello, encode(hello));
            }
            if (frame.kind == FrameKind::kStart) {
                const auto request = decode<StartRequest>(frame.payload);
                devices = request.workers[0].place.devices;
            }
            good(t, host, frame);
        });
        INFO(static_cast<int>(row.device) << " " << row.gpus[0] << " " << row.gpus[1]);
        if (row.words.empty()) {
            CHECK(run(spec, transport).exit_code == 0);
            CHECK(devices == row.devices);
        } else {
            CHECK_THAT(refusal(spec, transport, ExitCode::kHosts), Catch::Contains(row.words));
            CHECK_FALSE(transport.was_sent(FrameKind::kStart));
        }
    }
}

TEST_CASE("a GPU whose number a host does not have is missing there") {
    JobSpec spec = two_per_node(1);
    spec.device = DeviceRequest::kCuda;
    for (PlannedWorker& worker : spec.nodes[0].workers) worker.environment.devices = "6,7";
    FakeTransport transport([](FakeTransport& t, size_t host, const Frame& frame) {
        if (frame.kind == FrameKind::kStop) return t.say(host, FrameKind::kGone);
        AgentHello hello = good_hello();
        hello.gpus = 4;
        if (frame.kind == FrameKind::kHello) t.say(host, FrameKind::kAgentHello, encode(hello));
    });
    CHECK_THAT(refusal(spec, transport, ExitCode::kHosts),
               Catch::Contains("it has 4 GPUs, but 2 workers need GPUs 6,7"));
}

TEST_CASE("when nobody reads the output of programs they end, as SIGPIPE would end them") {
    PipedStream out(1);
    out.close_reader();
    FakeTransport transport(good_agent([](FakeTransport& t, size_t host) {
        t.say(host, FrameKind::kOutput, encode(WorkerOutput{0, OutputStream::kStdout, "line\n"}));
    }));
    const AttemptResult result = run(two_per_node(1), transport);
    out.restore();
    CHECK(result.exit_code == 128 + SIGPIPE);
    CHECK_FALSE(result.may_restart);
    CHECK_THAT(result.report, Catch::Contains("nobody reads the output"));
    CHECK(transport.was_sent(FrameKind::kStop));
}

TEST_CASE("a training goes on when nobody reads its output") {
    PipedStream out(1);
    out.close_reader();
    FakeTransport transport(good_agent([](FakeTransport& t, size_t host) {
        t.say(host, FrameKind::kOutput, encode(WorkerOutput{0, OutputStream::kStdout, "line\n"}));
        all_end_well(t, host);
    }));
    const AttemptResult result = run(two_per_node(1, TargetKind::kModel), transport);
    out.restore();
    CHECK(result.exit_code == 0);
    CHECK(result.report.empty());
}

TEST_CASE("ranks whose agent ends while the job is stopped are not called running") {
    FakeTransport transport([](FakeTransport& t, size_t host, const Frame& frame) {
        if (frame.kind == FrameKind::kStop) return t.end(host, "", 0);
        good_agent([](FakeTransport& at, size_t h) {
            if (h == 1) at.say(1, FrameKind::kExited, encode(exited(3, 5)));
        })(t, host, frame);
    });
    const AttemptResult result = run(two_per_node(2), transport);
    CHECK(result.exit_code == 5);
    CHECK_THAT(result.report, Catch::Contains("rank 3 on host n1 failed first: exit code 5"));
    CHECK_THAT(result.report, Catch::Contains("unknown, its agent ended first"));
    CHECK_THAT(result.report, !Catch::Contains("running"));
}

TEST_CASE(
    "a host without the job's Python is named before anything starts, another build is none") {
    JobSpec spec = two_per_node(2, TargetKind::kPython);
    spec.interpreter = "/opt/venv/bin/python3";
    for (const bool is_there : {true, false}) {
        const auto agent = good_agent(all_end_well);
        FakeTransport transport([&](FakeTransport& agents, size_t host, const Frame& frame) {
            if (frame.kind != FrameKind::kCheck) return agent(agents, host, frame);
            const auto request = decode<CheckRequest>(frame.payload);
            REQUIRE(request.paths == std::vector<std::string>{spec.interpreter});
            FileFacts facts;
            facts.path = spec.interpreter;
            facts.bytes = 100 + static_cast<int64_t>(host);
            facts.hash = std::string(64, host == 0 ? 'a' : 'b');
            if (host == 1 && !is_there) facts.error = "No such file or directory (ENOENT)";
            CheckReply reply;
            reply.files.push_back(facts);
            agents.say(host, FrameKind::kChecked, encode(reply));
        });
        if (is_there) {
            CHECK(run(spec, transport).exit_code == 0);
            continue;
        }
        const std::string said = refusal(spec, transport, ExitCode::kHosts);
        CHECK_THAT(said, Catch::Contains("n1: no Python at /opt/venv/bin/python3"));
        CHECK(said.find("n0:") == std::string::npos);
        CHECK_FALSE(transport.was_sent(FrameKind::kStart));
    }
}
