// The roles of dsworker that are jobs of ranks: the words that the launcher takes for each, and its
// purpose.
#include <algorithm>

#include "base/text.h"
#include "launcher/options/parse_run.h"
#include "launcher/run/build_job.h"
#include "support/catch.h"
#include "support/typed_line.h"

namespace dslaunch::launcher {
namespace {

using namespace launch;
using Words = std::vector<std::string>;

}  // namespace

TEST_CASE("a role on ranks has a grace time only where something may go on, and is told of it") {
    const auto role = [](const std::string& line) {
        return build_job(parse_role_options(split(line, ' ')), test::head_machine()).spec;
    };
    const JobSpec generate = role("generate model.pt --num_gpus 2 --prompt a");
    CHECK(generate.grace.count() == 0);
    CHECK(generate.duty == ModelDuty::kWrite);
    CHECK(generate.prints_results());
    const JobSpec serve = role("serve model.pt --num_gpus 2");
    CHECK(serve.grace == std::chrono::seconds(35));
    CHECK(serve.duty == ModelDuty::kServe);
    CHECK_FALSE(serve.prints_results());
    for (const char* line :
         {"serve model.pt --num_gpus 2 --grace 1.5", "serve model.pt --grace=1.5 --num_gpus 2"}) {
        const JobSpec patient = role(line);
        CHECK(patient.grace == std::chrono::milliseconds(6500));
        const Words& command = patient.nodes.front().workers.front().command;
        CHECK(std::ranges::any_of(
            command, [](const std::string& word) { return word.starts_with("--grace"); }));
    }
    const Words training_words = split("--num_gpus 2 model.pt", ' ');
    const JobSpec training =
        build_job(parse_run_options(training_words), test::head_machine()).spec;
    CHECK(training.duty == ModelDuty::kTrain);
    CHECK(training.grace == std::chrono::seconds(30));
}

}  // namespace dslaunch::launcher
