#include "worker/plan/plan_pipeline.h"

#include <ATen/Parallel.h>
#include <fmt/core.h>

#include "base/error.h"
#include "base/new_files.h"
#include "plan/choose/stage_choice.h"
#include "plan/mesh/mesh.h"
#include "plan/print/pipeline_text.h"
#include "storage/disk/output_place.h"
#include "worker/plan/plan_mesh.h"

namespace dslaunch::worker {
namespace {

// The costs of segments for one rank of a stage.
plan::StageRequest costs_of(const plan::MeshRequest& mesh, const MeshArguments& arguments) {
    plan::StageRequest costs = plan::make_stage_request(mesh.model, mesh.options, mesh.times);
    costs.link_bytes_per_s = arguments.link_bytes_per_s;
    costs.memory_max = mesh.rank_memory_max;
    return costs;
}

// The costs of the meshes that the ranks make, and of copies of the first.
struct Meshes {
    std::vector<plan::MeshFinding> found;
    std::vector<plan::MeshFinding> copies;
};

void print_text(const std::vector<plan::PipelineOption>& options, const plan::PipelineOption& shown,
                const plan::MeshRequest& mesh, const Meshes& meshes, const job::JobSetup& setup,
                const MeshArguments& arguments) {
    fmt::print("{} segments in {} stages, {} micro batches of {} rows in a step\n{}\n\n{}\n",
               setup.model_info.segments.size(), arguments.wish.stages,
               arguments.wish.micro_batches, setup.config().batch.micro_rows,
               times_text(setup, arguments), plan::schedules_table(options));
    fmt::print("stages of {}, times of a micro batch's forward and backward:\n{}",
               schedule_name(shown.kind), plan::stages_table(shown, setup.model_info));
    fmt::print("\nwith sums, updates and programs:\n{}", meshes_text(mesh, meshes.found));
    if (!meshes.copies.empty()) {
        fmt::print("\n{}", copies_text(meshes.copies));
        const int most = arguments.simulated_ranks / arguments.wish.stages;
        const int shard = plan::largest_shard_on_hosts(
            {1, 1, most, 0, 1}, arguments.hosts.node_sizes(arguments.simulated_ranks));
        fmt::print("copies that can share states without leaving a host: {}\n", shard);
    }
}

void print_json(const std::vector<plan::PipelineOption>& options, const plan::PipelineOption& shown,
                const Meshes& meshes, const job::JobSetup& setup, const MeshArguments& arguments) {
    JsonWriter json;
    json.begin_object().field("stages", arguments.wish.stages);
    json.field("micro_batches", arguments.wish.micro_batches);
    json.field("copies", setup.plan_options.world_size);
    json.field("segments", setup.model_info.segments.size());
    json.field("times", arguments.flops_per_s > 0 ? "flops" : "measured");
    json.field("threads", at::get_num_threads());
    json.field("link_bytes_per_s", arguments.link_bytes_per_s);
    json.field("shown", schedule_name(shown.kind));
    json.key("schedules");
    plan::schedules_json(options, setup.model_info, json);
    json.key("meshes");
    findings_json(meshes.found, json);
    if (!meshes.copies.empty()) {
        json.key("simulated");
        findings_json(meshes.copies, json);
    }
    json.end_object();
    fmt::print("{}\n", json.text());
}

}  // namespace

void print_pipelines(const job::JobSetup& setup, MeshArguments arguments) {
    if (!arguments.svg_path.empty()) storage::require_new_file(arguments.svg_path, arguments.force);
    if (arguments.wish.micro_batches == 0)
        arguments.wish.micro_batches = static_cast<int>(setup.config().batch.accumulation_steps);
    if (!arguments.schedule.empty()) arguments.wish.schedule = schedule_named(arguments.schedule);
    // With other axes the pipeline is not shown by itself.
    if (arguments.tensor.size > 1 || arguments.sequence > 1) return print_meshes(setup, arguments);
    const int ranks = setup.plan_options.world_size * arguments.wish.stages;
    const plan::MeshRequest mesh = mesh_request(setup, arguments, ranks);
    const std::vector<plan::PipelineOption> options =
        plan::pipeline_options(costs_of(mesh, arguments), arguments.wish);
    const int fastest = plan::fastest_of(options);
    if (fastest < 0) fail(ExitCode::kConfig, "{}", options.front().why_not);
    const plan::PipelineOption& shown = options[fastest];
    if (!arguments.svg_path.empty())
        write_file_atomically(arguments.svg_path, plan::timeline_svg(plan::pipeline_timeline(
                                                      shown.schedule, shown.run)));
    Meshes meshes{find_meshes(mesh, arguments), {}};
    meshes.copies = simulate_copies(setup, mesh, meshes.found.front().choice, arguments);
    if (arguments.json) {
        print_json(options, shown, meshes, setup, arguments);
    } else {
        print_text(options, shown, mesh, meshes, setup, arguments);
    }
}

}  // namespace dslaunch::worker
