#include "launch/supervise/resume_advice.h"

#include <csignal>
#include <filesystem>

#include "support/catch.h"
#include "support/temporary_folder.h"

namespace dslaunch::test {

using namespace launch;

TEST_CASE("the end of an interrupted training says why nothing was saved") {
    const TemporaryFolder folder;
    JobSpec spec;
    spec.target_kind = TargetKind::kModel;
    spec.duty = ModelDuty::kTrain;
    spec.output_directory = folder.path() + "/out";
    spec.resume_command = "dslaunch T -o out --resume";
    std::filesystem::create_directories(spec.output_directory);
    RankRecord killed;
    killed.ended = killed.told_to_end = true;
    killed.exited.signal_number = SIGKILL;
    RankRecord full = killed;  // for example, its disk was full
    full.told_to_end = false;
    struct Row {
        int64_t grace_ms;
        bool at_once;
        RankRecord rank;
        const char* expected;
    };
    const Row rows[] = {
        {30'000, true, killed, "saved: a second signal ended the job before it saved\n"},
        {30'000, false, killed, "saved: it did not save within the 30 s of --grace\n"},
        {0, true, killed, "saved: --grace 0 leaves no time to save\n"},
        {30'000, false, full, "no checkpoint was saved\n"},
    };
    for (const Row& row : rows) {
        spec.grace = std::chrono::milliseconds(row.grace_ms);
        const ResumeAdvice advice(spec);
        CHECK_THAT(advice.describe_interrupted({row.rank}, 7, row.at_once),
                   Catch::EndsWith(row.expected));
    }
    // An older checkpoint is there.
    std::filesystem::create_directories(spec.output_directory + "/checkpoints/latest");
    spec.grace = std::chrono::milliseconds(30'000);
    CHECK_THAT(ResumeAdvice(spec).describe_interrupted({killed}, 7, true),
               Catch::Contains("before everything was saved: a second signal ended the job before "
                               "it saved; to resume from the newest checkpoint, go on with: "));
}

}  // namespace dslaunch::test
