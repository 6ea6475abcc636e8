// dsworker plan MODEL.pt: what a training step would do and hold, for any number of ranks, without
// starting anything.
#include <fmt/core.h>

#include <utility>

#include "base/error.h"
#include "graph/compute_context.h"
#include "plan/plan_text.h"
#include "runtime/rank_device.h"
#include "worker/host_admission.h"
#include "worker/job_setup.h"
#include "worker/job_stages.h"
#include "worker/plan_cache.h"
#include "worker/plan_pipeline.h"
#include "worker/plan_tensor.h"
#include "worker/roles.h"
#include "worker/stored_rates.h"

namespace dslaunch {

namespace {

struct PlanArguments {
    JobArguments job;
    int world_size = 1;
    int ranks_per_node = 0;  // 0: all on one host
    std::string data;
    int64_t context = 0;
    std::string compare;  // "shard", "cache"
    TensorRequest tensor;
    int sequence = 0;                       // ranks that share positions; 0: not asked for
    std::vector<std::string> tensor_rules;  // PATTERN=RULE
    PipelineArguments pipeline;
    bool json = false;
};

Topology place_of(const PlanArguments& arguments, int rank) {
    const int per_node =
        arguments.ranks_per_node > 0 ? arguments.ranks_per_node : arguments.world_size;
    std::vector<int> node_sizes;
    for (int first = 0; first < arguments.world_size; first += per_node)
        node_sizes.push_back(std::min(per_node, arguments.world_size - first));
    return Topology::of_rank(std::move(node_sizes), rank);
}

// Ways of sharding side by side: what the busiest and the idlest rank own, in how many pieces, and
// what a step moves through disks and sends for it.
void print_shards(const JobSetup& setup, const PlanArguments& arguments) {
    StepPlanOptions options = setup.plan_options;
    options.stage = std::max(1, options.stage);  // at stage 0 what sharding would do
    const std::vector<ShardCost> costs = shard_costs(setup.info, setup.layout, options);
    const DiskRates rates = stored_rates(setup.config().offload);
    JsonWriter json;
    json.begin_object().field("world_size", arguments.world_size);
    json.field("elements", setup.layout.numel).key("shards").begin_array();
    std::string text = fmt::format(
        "{} elements, padding included, among {} ranks; bytes of one fp32 copy of a rank's part; "
        "disk bytes and seconds of the busiest host in a step\n"
        "{:<8} {:>14} {:>14} {:>10} {:>8} {:>14} {:>14} {:>8} {:>14} {:>8}\n",
        setup.layout.numel, arguments.world_size, "shard", "largest bytes", "smallest bytes",
        "imbalance", "pieces", "disk read", "disk written", "extents", "sent", "disk s");
    for (const ShardCost& cost : costs) {
        const PartitionBalance& balance = cost.balance;
        const auto seconds = rates.seconds(static_cast<double>(cost.read.value),
                                           static_cast<double>(cost.written.value));
        text += fmt::format(
            "{:<8} {:>14} {:>14} {:>10.3f} {:>8} {:>14} {:>14} {:>8} {:>14} {:>8}\n",
            shard_by_name(cost.by), balance.numel_max * 4, balance.numel_min * 4, balance.imbalance,
            balance.pieces, cost.read.value, cost.written.value, cost.extents_max, cost.sent.value,
            seconds ? fmt::format("{:.3f}", *seconds) : "-");
        json.begin_object().field("shard", shard_by_name(cost.by));
        json.field("bytes_max", balance.numel_max * 4).field("bytes_min", balance.numel_min * 4);
        json.field("imbalance", balance.imbalance).field("pieces", balance.pieces);
        json.field("disk_read_bytes", cost.read.value)
            .field("disk_written_bytes", cost.written.value);
        json.field("extents", cost.extents_max).field("sent_bytes", cost.sent.value);
        json.key("disk_s");
        if (seconds) {
            json.value(*seconds);
        } else {
            json.null();
        }
        json.end_object();
    }
    const std::string best(shard_by_name(choose_shard(costs)));
    json.end_array().field("auto", best).end_object();
    text += fmt::format("dslaunch.shard auto would be {}\n", best);
    fmt::print("{}", arguments.json ? json.text() + "\n" : text);
}

// A job on hosts like this machine, as a run would be admitted to it.
HostAdmission admit_here(const JobSetup& setup, const PlanArguments& arguments) {
    return admit_host(setup, place_of(arguments, 0), {});
}

void print_admission(const JobSetup& setup, const PlanArguments& arguments) {
    if (setup.on_gpu) return;
    const HostAdmission host = admit_here(setup, arguments);
    fmt::print("\n{}", admission_table(host.need, host.verdicts));
    if (!host.advice.empty())
        fmt::print("a run on hosts like this machine would be refused: {}\n", host.advice);
}

void admission_json(const JobSetup& setup, const PlanArguments& arguments, JsonWriter& json) {
    json.key("admission");
    if (setup.on_gpu) {
        json.null();
        return;
    }
    const HostAdmission host = admit_here(setup, arguments);
    begin_admission_json(host.need, host.verdicts, json);
    json.field("advice", host.advice).end_object();
}

void print_json(const JobSetup& setup, const PlanArguments& arguments) {
    JsonWriter json;
    json.begin_object().field("world_size", arguments.world_size);
    json.field("parameters", setup.model_info.parameter_numel())
        .field("trainable_parameters", setup.model_info.trainable_numel());
    json.key("opaque_node");  // what keeps whatever it calls in one segment
    const std::string& opaque = setup.segmented->lowered().opaque_node;
    if (opaque.empty()) {
        json.null();
    } else {
        json.value(opaque);
    }
    json.key("segments").begin_array();
    for (const SegmentInfo& segment : setup.model_info.segments) {
        json.begin_object().field("name", segment.name).field("nodes", segment.nodes);
        json.field("output_bytes", segment.output_bytes.value)
            .field("activation_bytes", segment.activation_bytes.value);
        json.field("forward_flops", segment.forward_flops).field("backward", segment.backward);
        json.key("parameters").begin_array();
        for (const int parameter : segment.parameters)
            json.value(setup.model_info.parameters[static_cast<size_t>(parameter)].name);
        json.end_array().end_object();
    }
    json.end_array().key("ranks").begin_array();
    for (int rank = 0; rank < arguments.world_size; ++rank) {
        const JobSetup own = seen_from(setup, place_of(arguments, rank));
        plan_json(own.plan, own.info, own.layout, json);
    }
    json.end_array();
    admission_json(setup, arguments, json);
    json.end_object();
    fmt::print("{}\n", json.text());
}

void add_tensor_options(CLI::App& app, PlanArguments& arguments) {
    app.add_option("--tensor", arguments.tensor.rules.size,
                   "instead of the plan, how so many ranks would share each layer")
        ->check(CLI::Range(1, 1024));
    app.add_option("--tensor-rule", arguments.tensor_rules,
                   "PATTERN=RULE for parameters whose name fits, `*` for any characters; RULE is "
                   "column, row, vocabulary or replicated; repeatable, the first that fits counts")
        ->allow_extra_args(false)
        ->needs("--tensor");
    app.add_flag("--share-positions", arguments.tensor.rules.share_positions,
                 "with --tensor: each rank computes its share of the positions between the layers "
                 "that are split")
        ->needs("--tensor");
    app.add_option("--sequence", arguments.sequence,
                   "instead of the plan, how so many ranks would share the positions of each "
                   "sample, and exchange them for heads around attention")
        ->check(CLI::Range(1, 1024))
        ->excludes("--tensor");
    app.add_flag("!--no-check", arguments.tensor.check,
                 "with --tensor or --sequence: do not run the model, split and whole, on one batch "
                 "in fp64");
}

void print_plan(const JobSetup& setup, const PlanArguments& arguments) {
    const std::string& opaque = setup.segmented->lowered().opaque_node;
    if (!opaque.empty())
        fmt::print("{} needs the module itself: what it calls stays in one segment\n\n", opaque);
    if (const std::string why = shard_text(setup); !why.empty())
        fmt::print("dslaunch.shard auto: {}\n\n", why);
    if (setup.place.is_pipeline()) fmt::print("{}\n\nits first rank:\n", stages_text(setup));
    fmt::print("{}", plan_table(setup.plan, setup.info, setup.layout));
    print_admission(setup, arguments);
}

void add_pipeline_options(CLI::App& app, PlanArguments& arguments) {
    PipelineArguments& pipeline = arguments.pipeline;
    CLI::Option* const stages =
        app.add_option("--stages", pipeline.wish.stages,
                       "instead of the plan, the model as a pipeline of so many stages, every "
                       "schedule beside the others")
            ->check(CLI::Range(1, 4096))
            ->excludes(app.get_option("--compare"));
    const auto add = [&](const char* name, auto& value, const char* meaning) {
        return app.add_option(name, value, meaning)->needs(stages);
    };
    add("--schedule", pipeline.schedule, "this schedule alone")
        ->check(CLI::IsMember({"gpipe", "1f1b", "interleaved", "zb-h1", "zb-v"}));
    add("--chunks", pipeline.wish.chunks, "of a stage, with interleaved (default 2)")
        ->check(CLI::Range(1, 64));
    add("--micro-batches", pipeline.wish.micro_batches,
        "of a step (default: the config's accumulation steps)")
        ->check(CLI::Range(1, 65536));
    add("--cuts", pipeline.wish.first_segments,
        "segments at which parts begin, 3,6,9 (default: chosen by cost)")
        ->delimiter(',');
    add("--svg", pipeline.svg_path, "draw the schedule, or the fastest, into this file");
    add("--simulate", pipeline.simulated_ranks,
        "cost copies of the pipeline on up to so many ranks")
        ->check(CLI::Range(1, 65536));
    add("--flops-rate", pipeline.flops_per_s,
        "FLOP/s of a rank: segments are timed by their FLOPs (default: measured here)")
        ->check(CLI::PositiveNumber);
    add("--link-rate", pipeline.link_bytes_per_s,
        "bytes/s between ranks (default: transfers take no time)")
        ->check(CLI::PositiveNumber);
    add("--rank-memory", pipeline.memory_gib, "GiB that a rank has (default: no limit)")
        ->check(CLI::PositiveNumber);
}

// The job is set up for the ranks of one stage: those are data-parallel.
void take_pipeline_ranks(PlanArguments& arguments, bool ranks_given) {
    const int stages = arguments.pipeline.wish.stages;
    if (!ranks_given) arguments.world_size = stages;
    const auto check = [&](const char* option, int ranks) {
        if (ranks % stages != 0)
            fail(ExitCode::kUsage, "{} {}: {} stages need a multiple of {} ranks", option, ranks,
                 stages, stages);
    };
    check("--world-size", arguments.world_size);
    check("--simulate", arguments.pipeline.simulated_ranks);
    arguments.world_size /= stages;
    arguments.pipeline.ranks_per_node = std::exchange(arguments.ranks_per_node, 0);
    arguments.pipeline.json = arguments.json;
}

}  // namespace

int plan_main(int argc, char** argv) {
    PlanArguments arguments;
    CLI::App app(
        "Prints a training step of rank 0 (with --json: of every rank): segments, instructions, "
        "waits, bytes moved and sent, memory by kind and tier.",
        "plan");
    app.add_option("model", arguments.job.model_path, "TorchScript archive")->required();
    app.add_option("--world-size", arguments.world_size, "ranks of the job")
        ->check(CLI::Range(1, 65536));
    app.add_option("--ranks-per-node", arguments.ranks_per_node,
                   "ranks on each host (default: all on one)")
        ->check(CLI::Range(1, 65536));
    app.add_option("--config,--deepspeed_config", arguments.job.config_path, "ds_config.json");
    app.add_option("--set", arguments.job.overrides, "override one key: a.b=c")
        ->allow_extra_args(false);
    app.add_option("--data", arguments.data, "training data, where the config names none");
    app.add_option("--context", arguments.context,
                   "tokens per sample; without data, tokens of this length are assumed")
        ->check(at_least(1));
    app.add_option("--segments", arguments.job.segments,
                   "pieces to cut the model into, 0: by whole layers");
    app.add_option("--compare", arguments.compare,
                   "instead of the plan, shard: bytes and balance of each way of sharding; cache: "
                   "what offload moves under other rules and numbers of slots")
        ->check(CLI::IsMember({"shard", "cache"}));
    add_tensor_options(app, arguments);
    app.add_flag("--json", arguments.json, "for machines");
    add_pipeline_options(app, arguments);
    if (!parse_command_line(app, {argv + 1, argv + argc})) return 0;
    const bool pipelines = arguments.pipeline.wish.stages > 0;
    if (pipelines) take_pipeline_ranks(arguments, app.count("--world-size") > 0);
    arguments.job.plan_only = true;
    // A plan for a GPU is made on the CPU, and refused where a run would be.
    arguments.job.open_device = [](const RunConfig& config) {
        if (config.device == DeviceChoice::kCuda) check_gpu_support(config);
        return c10::Device(c10::kCPU);
    };
    if (!arguments.data.empty())
        arguments.job.overrides.push_back("dslaunch.data.train=" + json_quote(arguments.data));
    if (arguments.context > 0)
        arguments.job.overrides.push_back(
            fmt::format("dslaunch.data.context={}", arguments.context));
    const Topology place = place_of(arguments, 0);
    for (const std::string& rule : arguments.tensor_rules)
        arguments.tensor.rules.patterns.push_back(parse_tensor_rule_option(rule));
    const JobSetup setup = set_up_job(arguments.job, place);
    if (pipelines) {
        print_pipelines(setup, arguments.pipeline);
        return 0;
    }
    check_host_plans(setup, place);
    if (arguments.sequence > 0) {
        arguments.tensor.sequence = true;
        arguments.tensor.rules.size = arguments.sequence;
    }
    if (app.count("--tensor") > 0 || arguments.tensor.sequence) {
        arguments.tensor.json = arguments.json;
        fmt::print("{}", tensor_report(setup, arguments.tensor));
    } else if (arguments.compare == "shard") {
        print_shards(setup, arguments);
    } else if (arguments.compare == "cache") {
        fmt::print("{}", compare_caches(setup, arguments.json));
    } else if (arguments.json) {
        print_json(setup, arguments);
    } else {
        print_plan(setup, arguments);
    }
    return 0;
}

}  // namespace dslaunch
