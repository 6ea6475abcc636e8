#include "worker/plan/plan_pipeline.h"

#include <ATen/Parallel.h>
#include <fmt/core.h>

#include <algorithm>
#include <set>

#include "base/check.h"
#include "base/error.h"
#include "base/fd.h"
#include "plan/mesh/mesh.h"
#include "plan/predict/pipeline_costs.h"
#include "plan/print/pipeline_text.h"
#include "plan/print/pipeline_timeline.h"
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

// The bytes of the gradients of each stage's trained parameters, by stage.
std::vector<Bytes> gradients_of(const plan::PipelineOption& option, const plan::ModelInfo& model) {
    std::vector<std::set<int>> parameters(static_cast<size_t>(option.shape.stages));
    for (size_t part = 0; part < option.choice.parts.size(); ++part) {
        const int stage =
            plan::place_of_part(option.kind, option.shape, static_cast<int>(part)).stage;
        const plan::SegmentRange range = option.choice.parts[part];
        for (int s = range.begin; s < range.end; ++s) {
            const std::vector<int>& read = model.segments[s].parameters;
            parameters[stage].insert(read.begin(), read.end());
        }
    }
    std::vector<Bytes> gradients;
    for (const std::set<int>& of_stage : parameters) {
        Bytes bytes;
        for (const int parameter : of_stage) {
            const plan::ParameterInfo& info = model.parameters[parameter];
            if (info.trainable) bytes += Bytes{4 * info.numel};
        }
        gradients.push_back(bytes);
    }
    return gradients;
}

// The costs of 1, 2, 4, … pipelines, up to the number that the simulated ranks hold.
std::vector<plan::ScaleCost> scale_costs(const plan::PipelineOption& option,
                                         const plan::ModelInfo& model,
                                         const MeshArguments& arguments) {
    const int stages = option.shape.stages;
    DSL_CHECK(arguments.simulated_ranks % stages == 0, "{} ranks in {} stages",
              arguments.simulated_ranks, stages);
    plan::ScaleRequest request;
    request.schedule = option.kind;
    request.shape = option.shape;
    for (size_t part = 0; part + 1 < option.choice.parts.size(); ++part) {
        const int last = option.choice.parts[part].end - 1;
        request.sent.push_back(model.segments[last].output_bytes);
    }
    request.gradients = gradients_of(option, model);
    request.pipeline_s = option.run.step_s;
    request.rates.link_bytes_per_s = arguments.link_bytes_per_s;
    std::vector<plan::ScaleCost> costs;
    const int copies_max = arguments.simulated_ranks / stages;
    for (int64_t copies = 1;; copies = std::min<int64_t>(2 * copies, copies_max)) {
        const int data = static_cast<int>(copies);
        const plan::Mesh mesh =
            plan::Mesh::make({1, 1, data, 0, stages}, arguments.hosts.node_sizes(data * stages));
        costs.push_back(plan::scale_cost(request, mesh));
        if (copies == copies_max) return costs;
    }
}

void print_text(const std::vector<plan::PipelineOption>& options, const plan::PipelineOption& shown,
                const plan::MeshRequest& mesh, const job::JobSetup& setup,
                const MeshArguments& arguments) {
    fmt::print("{} segments in {} stages, {} micro batches of {} rows in a step\n{}\n\n{}\n",
               setup.model_info.segments.size(), arguments.wish.stages,
               arguments.wish.micro_batches, setup.config().batch.micro_rows,
               times_text(setup, arguments), plan::schedules_table(options));
    fmt::print("stages of {}, times of a micro batch's forward and backward:\n{}",
               schedule_name(shown.kind), plan::stages_table(shown, setup.model_info));
    fmt::print("\nwith sums, updates and programs:\n{}",
               meshes_text(mesh, find_meshes(mesh, arguments)));
    if (arguments.simulated_ranks > 0) {
        fmt::print("\ncopies of {}, bytes between hosts in a step:\n{}", schedule_name(shown.kind),
                   plan::scale_table(scale_costs(shown, setup.model_info, arguments)));
        const int most = arguments.simulated_ranks / arguments.wish.stages;
        const int shard = plan::largest_shard_on_hosts(
            {1, 1, most, 0, 1}, arguments.hosts.node_sizes(arguments.simulated_ranks));
        fmt::print("copies that can share states without leaving a host: {}\n", shard);
    }
}

void print_json(const std::vector<plan::PipelineOption>& options, const plan::PipelineOption& shown,
                const plan::MeshRequest& mesh, const job::JobSetup& setup,
                const MeshArguments& arguments) {
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
    json.key("meshes").begin_array();
    for (const plan::MeshFinding& finding : find_meshes(mesh, arguments))
        plan::mesh_json(finding, json);
    json.end_array();
    if (arguments.simulated_ranks > 0) {
        json.key("simulated");
        plan::scale_json(scale_costs(shown, setup.model_info, arguments), json);
    }
    json.end_object();
    fmt::print("{}\n", json.text());
}

}  // namespace

void print_pipelines(const job::JobSetup& setup, MeshArguments arguments) {
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
    if (arguments.json) {
        print_json(options, shown, mesh, setup, arguments);
    } else {
        print_text(options, shown, mesh, setup, arguments);
    }
}

}  // namespace dslaunch::worker
