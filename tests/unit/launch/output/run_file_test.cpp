// run.json of a job whose folder has an earlier run's.
#include "launch/output/run_file.h"

#include <nlohmann/json.hpp>

#include "launch/output/job_files.h"
#include "launch/output/job_output.h"
#include "support/catch.h"
#include "support/job_process.h"
#include "support/text_tools.h"

using namespace dslaunch;
using namespace dslaunch::launch;
using namespace dslaunch::test;

namespace {

JobSpec run_file_one_rank(TargetKind kind, const std::string& output) {
    JobSpec spec;
    spec.target_kind = kind;
    spec.target = "train.pt";
    spec.world_size = 1;
    spec.output_directory = output;
    PlannedNode node;
    node.name = "n0";
    node.workers.emplace_back();
    spec.nodes = {node};
    return spec;
}

}  // namespace

TEST_CASE("run.json of an earlier run stays until the first step of a training begins") {
    TemporaryFolder folder;
    for (const TargetKind kind : {TargetKind::kModel, TargetKind::kProgram}) {
        write_file(folder.path() + "/run.json", "earlier");
        const JobSpec spec = run_file_one_rank(kind, folder.path());
        StandardStreams streams;
        JobFiles files(spec);
        JobOutput output(spec, streams, files);
        output.write_run_file(-1);
        output.write_run_file(73);
        files.finish();
        CHECK((folder.read("run.json") == "earlier") == (kind == TargetKind::kModel));
    }
    write_file(folder.path() + "/run.json", "earlier");
    const JobSpec spec = run_file_one_rank(TargetKind::kModel, folder.path());
    StandardStreams streams;
    JobFiles files(spec);
    JobOutput output(spec, streams, files);
    output.begin_steps();
    files.finish();
    CHECK(nlohmann::json::parse(folder.read("run.json"))["exit_code"].is_null());
    output.write_run_file(69);
    files.finish();
    CHECK(nlohmann::json::parse(folder.read("run.json"))["exit_code"] == 69);
}
