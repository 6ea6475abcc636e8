// Processes that a launch has left are found by the launch's id and ended, and no others.
#include "launch/agent/leftover_processes.h"

#include "base/error.h"
#include "support/catch.h"
#include "support/job_process.h"

using namespace dslaunch;
using namespace dslaunch::launch;
using namespace dslaunch::test;

namespace {

// A process that is started with VARIABLES in its environment.
class Left {
  public:
    Left(const std::vector<std::string>& variables, const std::string& script)
        : process_(folder_, command(variables, script)) {
        REQUIRE(wait_until(
            [&] {
                name_ = name_process(process_.pid());
                return process_file(process_.pid(), "environ").find(variables.back()) !=
                       std::string::npos;
            },
            5'000));
    }
    [[nodiscard]] bool lives() const { return name_process(name_.pid) == name_; }
    [[nodiscard]] pid_t pid() const { return name_.pid; }

  private:
    static std::vector<std::string> command(std::vector<std::string> words,
                                            const std::string& script) {
        words.insert(words.begin(), "env");
        words.insert(words.end(), {"sh", "-c", script});
        return words;
    }

    TemporaryFolder folder_;
    JobProcess process_;
    ProcessName name_;
};

const std::string kWaits = "exec sleep 600";
const std::string kStubborn = "trap '' TERM; while :; do sleep 0.05; done";

}  // namespace

TEST_CASE("what a launch left is ended, stubborn and stopped ones too, and no others") {
    const std::string id = "leftovers-" + std::to_string(::getpid());
    const Left ours({"DSL_LAUNCH_ID=" + id}, kWaits);
    const Left stubborn({"DSL_LAUNCH_ID=" + id}, kStubborn);
    const Left stopped({"DSL_LAUNCH_ID=" + id}, "kill -STOP $$; exec sleep 600");
    const Left longer({"DSL_LAUNCH_ID=" + id + "0"}, kWaits);
    const Left other_name({"MY_DSL_LAUNCH_ID=" + id}, kWaits);
    const Left inside({"X=DSL_LAUNCH_ID=" + id}, kWaits);
    // A job of the same name, and another user's torchrun with that name: equal names prove
    // nothing.
    const Left namesake({"DSL_JOB_ID=" + id, "DSL_LAUNCH_ID=other"}, kWaits);
    const Left torchrun({"TORCHELASTIC_RUN_ID=" + id}, kWaits);
    int looks = 0;
    const auto ended = end_leftovers({id}, [&] { ++looks; });
    CHECK(looks > 0);
    // The sleep that the stubborn process has started may be among them.
    CHECK(ended.size() >= 3);
    for (const LeftProcess& process : ended) CHECK(process.ended);
    CHECK_FALSE(ours.lives());
    CHECK_FALSE(stubborn.lives());
    CHECK_FALSE(stopped.lives());
    for (const Left* spared : {&longer, &other_name, &inside, &namesake, &torchrun})
        CHECK(spared->lives());
    CHECK(find_leftovers({id}).empty());
    CHECK(find_leftovers({""}).empty());
}

TEST_CASE("of the attempts of a launch only those before the one that begins are ended") {
    const std::string id = "attempts-" + std::to_string(::getpid());
    const Left first({"DSL_LAUNCH_ID=" + id, "DSL_ATTEMPT=0"}, kWaits);
    const Left second({"DSL_LAUNCH_ID=" + id, "DSL_ATTEMPT=1"}, kWaits);
    const Left third({"DSL_LAUNCH_ID=" + id, "DSL_ATTEMPT=2"}, kWaits);
    const Left unnumbered({"DSL_LAUNCH_ID=" + id}, kWaits);
    const Left other({"DSL_LAUNCH_ID=other", "DSL_ATTEMPT=0"}, kWaits);
    CHECK(find_leftovers({id, 0}).empty());
    CHECK(end_leftovers({id, 2}, [] {}).size() == 2);
    CHECK_FALSE(first.lives());
    CHECK_FALSE(second.lives());
    for (const Left* spared : {&third, &unnumbered, &other}) CHECK(spared->lives());
}

TEST_CASE("question and answer about a dead job survive their journey") {
    CHECK(decode<StopJobRequest>(encode(StopJobRequest{"id-1"})).launch_id == "id-1");
    CHECK(decode<StopJobRequest>(encode(StopJobRequest{"id-1"})).before_attempt == kAllAttempts);
    CHECK(decode<StopJobRequest>(encode(StopJobRequest{"id-1", 7})).before_attempt == 7);
    StopJobReply reply;
    reply.processes = {{{7, 8}, "python3", "0,1", true}, {{9, 10}, "sh", "", false}};
    const auto got = decode<StopJobReply>(encode(reply)).processes;
    REQUIRE(got.size() == 2);
    CHECK(got[0].name == ProcessName{7, 8});
    CHECK(got[0].gpus == "0,1");
    CHECK(got[0].ended);
    CHECK(got[1].command == "sh");
    CHECK_FALSE(got[1].ended);
    const std::string bytes = encode(reply);
    for (size_t cut = 0; cut < bytes.size(); ++cut)
        CHECK_THROWS_AS(decode<StopJobReply>(bytes.substr(0, cut)), Error);
    CHECK_THROWS_AS(decode<StopJobReply>(bytes + "x"), Error);
}
