#include "launch/supervise/job_loop.h"

#include <sys/eventfd.h>

#include <algorithm>
#include <deque>

#include "base/error.h"
#include "launch/plan/launch_plan.h"
#include "support/catch.h"
#include "support/job_process.h"
#include "support/piped_stream.h"

using namespace dslaunch;
using namespace dslaunch::launch;
using namespace dslaunch::test;

namespace {

// The job that an attempt received.
struct Seen {
    std::vector<std::string> hosts;
    int world_size;
    int restarts;
    int starts;
};

AttemptOutcome failed(int code, bool may_restart = true) {
    AttemptOutcome outcome;
    outcome.result.exit_code = code;
    outcome.result.may_restart = may_restart;
    return outcome;
}

AttemptOutcome unreachable(std::vector<std::string> hosts) {
    AttemptOutcome outcome;
    outcome.bad_hosts = std::move(hosts);
    outcome.refusal = "cannot start an agent on some";
    return outcome;
}

// Returns a job on three hosts a, b, c with 1, 2 and 3 slots.
JobSpec elastic_spec(NodeCounts range, int max_restarts) {
    PlanRequest request;
    for (int i = 0; i < 3; ++i) {
        HostSlots entry;
        entry.host.name = std::string(1, static_cast<char>('a' + i));
        for (int slot = 0; slot <= i; ++slot) entry.slots.push_back(slot);
        request.hosts.push_back(entry);
    }
    request.command_head = {"program"};
    JobSpec spec;
    spec.max_restarts = max_restarts;
    spec.elastic.nodes = range;
    spec.elastic.hosts = {"a", "b", "c"};
    spec.elastic.plan = [request](const std::vector<size_t>& chosen) {
        PlanRequest smaller = request;
        smaller.hosts.clear();
        for (const size_t index : chosen) smaller.hosts.push_back(request.hosts[index]);
        return make_launch_plan(smaller);
    };
    spec.nodes = make_launch_plan(request);
    spec.world_size = 6;
    return spec;
}

JobSpec fixed_spec(int max_restarts, TargetKind kind = TargetKind::kProgram) {
    JobSpec spec = elastic_spec({1, 3}, max_restarts);
    spec.elastic = {};
    spec.target_kind = kind;
    return spec;
}

class Loop {
  public:
    explicit Loop(JobSpec spec) : spec_(std::move(spec)), signals_(::eventfd(0, EFD_CLOEXEC)) {
        times.steady_attempt = std::chrono::milliseconds(60'000);
        times.gather_max = std::chrono::milliseconds(100);
        times.gather_pause = std::chrono::milliseconds(5);
        times.delay = [this](int failures) {
            delays.push_back(failures);
            return std::chrono::milliseconds(0);
        };
    }
    int run(std::deque<AttemptOutcome> outcomes) {
        JobRecord record(spec_, [](std::string_view) {});
        const auto attempt = [&](const JobSpec& spec, JobOutput&, const AttemptNumber& number,
                                 const std::vector<CutOffHost>&) {
            Seen one{{}, spec.world_size, number.restarts, number.starts};
            for (const PlannedNode& node : spec.nodes) one.hosts.push_back(node.name);
            seen.push_back(one);
            if (on_attempt) on_attempt();
            AttemptOutcome outcome = outcomes.front();
            if (outcomes.size() > 1) outcomes.pop_front();  // the last one repeats
            return outcome;
        };
        StandardStreams streams;
        JobFiles files(spec_);
        return JobLoop(spec_, {record, streams, files}, attempt, signals_.get(), times).run();
    }
    void interrupt() const {
        const uint64_t one = 1;
        static_cast<void>(::write(signals_.get(), &one, sizeof one));
    }
    std::vector<Seen> seen;
    std::vector<int> delays;
    std::function<void()> on_attempt;
    RestartTimes times;

  private:
    JobSpec spec_;
    UniqueFd signals_;
};

using Names = std::vector<std::string>;

}  // namespace

TEST_CASE("a job that keeps failing is started N times more and ends with its own code") {
    for (const int restarts : {0, 1, 3}) {
        Loop loop(fixed_spec(restarts));
        CHECK(loop.run({failed(9)}) == 9);
        REQUIRE(loop.seen.size() == static_cast<size_t>(restarts) + 1);
        for (int i = 0; i <= restarts; ++i) CHECK(loop.seen[i].restarts == i);
    }
}

TEST_CASE("quick failures are counted in a row, and a restart that works ends the job well") {
    Loop loop(fixed_spec(5));
    CHECK(loop.run({failed(1), failed(1), failed(1), failed(0, false)}) == 0);
    CHECK(loop.seen.size() == 4);
    CHECK(*std::max_element(loop.delays.begin(), loop.delays.end()) == 3);
}

TEST_CASE("after a steady attempt there is no wait") {
    Loop loop(fixed_spec(1));
    loop.times.steady_attempt = std::chrono::milliseconds(0);
    CHECK(loop.run({failed(1), failed(0, false)}) == 0);
    for (const int failures : loop.delays) CHECK(failures == 0);
}

TEST_CASE("what nobody may restart ends at once: an interrupt, a mistake in the config") {
    Loop interrupted(fixed_spec(5));
    CHECK(interrupted.run({failed(76, false)}) == 76);
    CHECK(interrupted.seen.size() == 1);
    Loop mistaken(fixed_spec(5, TargetKind::kModel));
    CHECK(mistaken.run({failed(65)}) == 65);
    CHECK(mistaken.seen.size() == 1);
    Loop program(fixed_spec(1));
    CHECK(program.run({failed(65)}) == 65);
    CHECK(program.seen.size() == 2);
}

TEST_CASE("a taken port is tried once more and costs no restart, and is an attempt of its own") {
    AttemptOutcome clash = failed(1);
    clash.result.port_was_taken = true;
    Loop loop(fixed_spec(0));
    CHECK(loop.run({clash}) == 1);
    REQUIRE(loop.seen.size() == 2);
    CHECK(loop.seen[1].restarts == 0);
    // The number tells processes that the first start has left from processes that this one starts.
    CHECK(loop.seen[0].starts == 0);
    CHECK(loop.seen[1].starts == 1);
}

TEST_CASE("an elastic job begins with the hosts that answer, and hosts that came back join again") {
    Loop loop(elastic_spec({1, 3}, 2));
    CHECK(loop.run({unreachable({"b"}), failed(9), failed(9), failed(0, false)}) == 0);
    REQUIRE(loop.seen.size() == 4);
    CHECK(loop.seen[0].hosts == Names{"a", "b", "c"});
    CHECK(loop.seen[0].world_size == 6);
    CHECK(loop.seen[1].hosts == Names{"a", "c"});
    CHECK(loop.seen[1].world_size == 4);
    CHECK(loop.seen[1].restarts == 0);
    CHECK(loop.seen[2].hosts == Names{"a", "b", "c"});
    CHECK(loop.seen[2].restarts == 1);
}

TEST_CASE("at most MAX hosts are used, and the next one takes the place of a bad one") {
    Loop loop(elastic_spec({2, 2}, 0));
    CHECK(loop.run({unreachable({"a"}), failed(0, false)}) == 0);
    CHECK(loop.seen[0].hosts == Names{"a", "b"});
    CHECK(loop.seen[1].hosts == Names{"b", "c"});
    CHECK(loop.seen[1].world_size == 5);
}

TEST_CASE("too few hosts at the start are an error that says which, and nothing waits") {
    for (const bool elastic : {true, false}) {
        Loop loop(elastic ? elastic_spec({3, 3}, 5) : fixed_spec(5));
        try {
            static_cast<void>(loop.run({unreachable({"b"})}));
            FAIL("it ran");
        } catch (const Error& error) {
            CHECK(error.code() == ExitCode::kHosts);
            CHECK_THAT(error.what(), Catch::Contains("cannot start an agent"));
        }
        CHECK(loop.seen.size() == 1);
    }
}

TEST_CASE("after a failure too few hosts are waited for, and only for a while") {
    for (const bool elastic : {true, false}) {
        Loop back(elastic ? elastic_spec({3, 3}, 1) : fixed_spec(1));
        back.times.gather_max = std::chrono::milliseconds(60'000);
        CHECK(back.run({failed(67), unreachable({"b"}), unreachable({"b"}), failed(0, false)}) ==
              0);
        CHECK(back.seen.size() == 4);
        CHECK(back.seen.back().restarts == 1);
        CHECK(back.seen.back().world_size == 6);
        // The test above counts the tries. How many of them fit into a time depends on the machine.
        Loop gone(elastic ? elastic_spec({3, 3}, 1) : fixed_spec(1));
        const auto began = Steady::now();
        CHECK_THROWS_AS(gone.run({failed(67), unreachable({"b"})}), Error);
        CHECK(Steady::now() - began >= std::chrono::milliseconds(80));
        CHECK(gone.seen.size() > 1);
    }
}

TEST_CASE("Ctrl-C between two attempts ends the job without another") {
    Loop loop(fixed_spec(5));
    loop.times.delay = [](int) { return std::chrono::milliseconds(60'000); };
    loop.on_attempt = [&] { loop.interrupt(); };
    CHECK(loop.run({failed(9)}) == 76);
    CHECK(loop.seen.size() == 1);
}

TEST_CASE("each rank's log says where a restart begins") {
    TemporaryFolder folder;
    JobSpec spec = fixed_spec(1);
    spec.output_directory = folder.path();
    Loop loop(spec);
    CHECK(loop.run({failed(9)}) == 9);
    CHECK(folder.read("logs/rank-5.log") == "dslaunch: restart 1 of 1, 6 ranks\n");
}

TEST_CASE("a terminal that stands still holds up no restart, only the last words") {
    PipedStream err(2);
    err.fill();
    Loop loop(fixed_spec(1));
    // Nobody will read, so the reader's end is closed: otherwise the last words would wait for
    // ever.
    loop.on_attempt = [&] {
        if (loop.seen.size() == 2) err.close_reader();
    };
    bool was_held_up = false;
    const auto watchdog = [&](const std::stop_token& stop) {
        if (wait_until([&] { return stop.stop_requested(); })) return;
        was_held_up = true;
        err.close_reader();
    };
    std::jthread watching(watchdog);
    const int code = loop.run({failed(3)});
    watching.request_stop();
    watching.join();
    err.restore();
    CHECK(code == 3);
    CHECK(loop.seen.size() == 2);
    CHECK_FALSE(was_held_up);
}
