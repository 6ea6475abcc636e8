#include "worker/plan_pipeline.h"

#include <ATen/Parallel.h>
#include <fmt/core.h>

#include <algorithm>
#include <set>

#include "base/check.h"
#include "base/error.h"
#include "base/fd.h"
#include "graph/measure.h"
#include "graph/segment_times.h"
#include "plan/mesh.h"
#include "plan/pipeline_costs.h"
#include "plan/pipeline_text.h"
#include "plan/pipeline_timeline.h"
#include "worker/job_forecast.h"

namespace dslaunch {
namespace {

constexpr int kTimedRounds = 5;
constexpr int kTableRanksMax = 64;

std::vector<int> hosts_of(int ranks, int ranks_per_node) {
    const int each = ranks_per_node > 0 ? ranks_per_node : ranks;
    std::vector<int> hosts;
    for (int first = 0; first < ranks; first += each)
        hosts.push_back(std::min(each, ranks - first));
    return hosts;
}

// With what is kept between the halves of a backward, where that can be measured here.
ModelInfo info_of(const JobSetup& setup) {
    if (setup.on_gpu) return setup.model_info;
    return measure(*setup.segmented, trial_batch(setup), /*split_backward=*/true);
}

StageRequest costs_of(const JobSetup& setup, const ModelInfo& info,
                      const PipelineArguments& arguments) {
    if (setup.on_gpu && arguments.flops_per_s <= 0)
        fail(ExitCode::kConfig,
             "the segments of a plan for a GPU cannot be timed here; say how many FLOP/s a rank "
             "does with --flops-rate");
    StageRequest costs =
        make_stage_request(info, setup.plan_options,
                           arguments.flops_per_s > 0
                               ? times_from_flops(info, arguments.flops_per_s)
                               : measure_times(*setup.segmented, trial_batch(setup), kTimedRounds));
    costs.link_bytes_per_s = arguments.link_bytes_per_s;
    if (arguments.memory_gib > 0)
        costs.memory_max = Bytes{static_cast<int64_t>(arguments.memory_gib * (1LL << 30))};
    return costs;
}

// Of the trained parameters of each stage.
std::vector<Bytes> gradients_of(const PipelineOption& option, const ModelInfo& model) {
    std::vector<std::set<int>> parameters(static_cast<size_t>(option.shape.stages));
    for (size_t part = 0; part < option.choice.parts.size(); ++part) {
        const int stage = place_of_part(option.kind, option.shape, static_cast<int>(part)).stage;
        const SegmentRange range = option.choice.parts[part];
        for (int s = range.begin; s < range.end; ++s) {
            const std::vector<int>& read = model.segments[static_cast<size_t>(s)].parameters;
            parameters[static_cast<size_t>(stage)].insert(read.begin(), read.end());
        }
    }
    std::vector<Bytes> gradients;
    for (const std::set<int>& of_stage : parameters) {
        Bytes bytes;
        for (const int parameter : of_stage) {
            const ParameterInfo& info = model.parameters[static_cast<size_t>(parameter)];
            if (info.trainable) bytes += Bytes{4 * info.numel};
        }
        gradients.push_back(bytes);
    }
    return gradients;
}

// One pipeline, two, four, … as many as the simulated ranks hold.
std::vector<ScaleCost> scale_costs(const PipelineOption& option, const ModelInfo& model,
                                   const PipelineArguments& arguments) {
    const int stages = option.shape.stages;
    DSL_CHECK(arguments.simulated_ranks % stages == 0, "{} ranks in {} stages",
              arguments.simulated_ranks, stages);
    ScaleRequest request;
    request.schedule = option.kind;
    request.shape = option.shape;
    for (size_t part = 0; part + 1 < option.choice.parts.size(); ++part) {
        const int last = option.choice.parts[part].end - 1;
        request.sent.push_back(model.segments[static_cast<size_t>(last)].output_bytes);
    }
    request.gradients = gradients_of(option, model);
    request.pipeline_s = option.run.step_s;
    request.link_bytes_per_s = arguments.link_bytes_per_s;
    std::vector<ScaleCost> costs;
    const int copies_max = arguments.simulated_ranks / stages;
    for (int64_t copies = 1;; copies = std::min<int64_t>(2 * copies, copies_max)) {
        const int data = static_cast<int>(copies);
        const Mesh mesh =
            Mesh::make({1, 1, data, 0, stages}, hosts_of(data * stages, arguments.ranks_per_node));
        costs.push_back(scale_cost(request, mesh));
        if (copies == copies_max) return costs;
    }
}

std::string times_text(const PipelineArguments& arguments) {
    const std::string link =
        arguments.link_bytes_per_s > 0
            ? fmt::format("transfers at {:.4g} GB/s", arguments.link_bytes_per_s / 1e9)
            : "transfers take no time, for --link-rate is not given";
    if (arguments.flops_per_s > 0)
        return fmt::format("times from FLOPs at {:.4g} TFLOP/s; {}", arguments.flops_per_s / 1e12,
                           link);
    return fmt::format("times measured here with {} {}; {}", at::get_num_threads(),
                       at::get_num_threads() == 1 ? "thread" : "threads", link);
}

void print_text(const std::vector<PipelineOption>& options, const PipelineOption& shown,
                const JobSetup& setup, const PipelineArguments& arguments) {
    fmt::print("{} segments in {} stages, {} micro batches of {} rows in a step\n{}\n\n{}\n",
               setup.model_info.segments.size(), arguments.wish.stages,
               arguments.wish.micro_batches, setup.config().batch.micro_rows, times_text(arguments),
               schedules_table(options));
    fmt::print("stages of {}, times of a micro batch's forward and backward:\n{}",
               schedule_name(shown.kind), stages_table(shown, setup.model_info));
    const int copies = setup.plan_options.world_size;
    const int ranks = copies * arguments.wish.stages;
    const std::vector<int> hosts = hosts_of(ranks, arguments.ranks_per_node);
    if (copies > 1 && ranks <= kTableRanksMax)
        fmt::print("\n{}", Mesh::make({1, 1, copies, 0, arguments.wish.stages}, hosts).table());
    if (arguments.simulated_ranks > 0) {
        fmt::print("\ncopies of {}, bytes between hosts in a step:\n{}", schedule_name(shown.kind),
                   scale_table(scale_costs(shown, setup.model_info, arguments)));
        const int most = arguments.simulated_ranks / arguments.wish.stages;
        const int shard = largest_shard_on_hosts(
            {1, 1, most, 0, 1}, hosts_of(arguments.simulated_ranks, arguments.ranks_per_node));
        fmt::print("copies that can share states without leaving a host: {}\n", shard);
    }
}

void print_json(const std::vector<PipelineOption>& options, const PipelineOption& shown,
                const JobSetup& setup, const PipelineArguments& arguments) {
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
    schedules_json(options, setup.model_info, json);
    if (arguments.simulated_ranks > 0) {
        json.key("simulated");
        scale_json(scale_costs(shown, setup.model_info, arguments), json);
    }
    json.end_object();
    fmt::print("{}\n", json.text());
}

}  // namespace

void print_pipelines(const JobSetup& setup, PipelineArguments arguments) {
    if (arguments.wish.micro_batches == 0)
        arguments.wish.micro_batches = static_cast<int>(setup.config().batch.accumulation_steps);
    if (!arguments.schedule.empty()) arguments.wish.schedule = schedule_named(arguments.schedule);
    const ModelInfo info = info_of(setup);
    const std::vector<PipelineOption> options =
        pipeline_options(costs_of(setup, info, arguments), arguments.wish);
    const int fastest = fastest_of(options);
    if (fastest < 0) fail(ExitCode::kConfig, "{}", options.front().why_not);
    const PipelineOption& shown = options[static_cast<size_t>(fastest)];
    if (!arguments.svg_path.empty())
        write_file_atomically(arguments.svg_path,
                              timeline_svg(pipeline_timeline(shown.schedule, shown.run)));
    if (arguments.json) {
        print_json(options, shown, setup, arguments);
    } else {
        print_text(options, shown, setup, arguments);
    }
}

}  // namespace dslaunch
