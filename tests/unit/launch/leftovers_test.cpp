// Processes that a job left are found by its id and ended; nobody else's are.
#include "launch/agent/leftovers.h"

#include "base/error.h"
#include "support/catch.h"
#include "support/job_process.h"

using namespace dslaunch;
using namespace dslaunch::launch;
using namespace dslaunch::test;

namespace {

// A process whose environment holds VARIABLES when it starts.
class Left {
  public:
    Left(const std::string& variable, const std::string& script)
        : process_(folder_, {"env", variable, "sh", "-c", script}) {
        REQUIRE(wait_until(
            [&] {
                name_ = name_process(process_.pid());
                return process_file(process_.pid(), "environ").find(variable) != std::string::npos;
            },
            5'000));
    }
    [[nodiscard]] bool lives() const { return name_process(name_.pid) == name_; }
    [[nodiscard]] pid_t pid() const { return name_.pid; }

  private:
    TemporaryFolder folder_;
    JobProcess process_;
    ProcessName name_;
};

const std::string kWaits = "exec sleep 600";
const std::string kStubborn = "trap '' TERM; while :; do sleep 0.05; done";

}  // namespace

TEST_CASE("a dead job's processes are ended, stubborn and stopped ones too, and no others") {
    const std::string id = "leftovers-" + std::to_string(::getpid());
    const Left ours("TORCHELASTIC_RUN_ID=" + id, kWaits);
    const Left stubborn("DSL_JOB_ID=" + id, kStubborn);
    const Left stopped("DSL_JOB_ID=" + id, "kill -STOP $$; exec sleep 600");
    const Left longer("TORCHELASTIC_RUN_ID=" + id + "0", kWaits);
    const Left other_name("MY_TORCHELASTIC_RUN_ID=" + id, kWaits);
    const Left inside("X=TORCHELASTIC_RUN_ID=" + id, kWaits);
    const Left other("DSL_JOB_ID=other", kWaits);
    const auto ended = end_processes_of_job(id);
    // The stubborn one's sleep may be among them.
    CHECK(ended.size() >= 3);
    for (const LeftProcess& process : ended) CHECK(process.ended);
    CHECK_FALSE(ours.lives());
    CHECK_FALSE(stubborn.lives());
    CHECK_FALSE(stopped.lives());
    for (const Left* spared : {&longer, &other_name, &inside, &other}) CHECK(spared->lives());
    CHECK(processes_of_job(id).empty());
    CHECK(processes_of_job("").empty());
}

TEST_CASE("question and answer about a dead job survive their journey") {
    CHECK(decode_stop_request(encode(StopJobRequest{"job-1"})).job_id == "job-1");
    StopJobReply reply;
    reply.processes = {{{7, 8}, "python3", "0,1", true}, {{9, 10}, "sh", "", false}};
    const auto got = decode_stop_reply(encode(reply)).processes;
    REQUIRE(got.size() == 2);
    CHECK(got[0].name == ProcessName{7, 8});
    CHECK(got[0].gpus == "0,1");
    CHECK(got[0].ended);
    CHECK(got[1].command == "sh");
    CHECK_FALSE(got[1].ended);
    const std::string bytes = encode(reply);
    for (size_t cut = 0; cut < bytes.size(); ++cut)
        CHECK_THROWS_AS(decode_stop_reply(bytes.substr(0, cut)), Error);
    CHECK_THROWS_AS(decode_stop_reply(bytes + "x"), Error);
}
