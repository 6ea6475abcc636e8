#include "worker/plan/plan_options.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "base/text/json.h"
#include "config/resolve/option_overrides.h"
#include "job/predict/job_forecast.h"
#include "plan/predict/known_devices.h"
#include "storage/huggingface/named_place.h"
#include "worker/roles.h"

namespace dslaunch::worker {
namespace {

void add_job_options(CommandLine& app, PlanArguments& arguments) {
    app.add("MODEL", arguments.job.model_path,
            "an archive (.pt2, .pt), a Hugging Face folder, or a config.json")
        .required();
    add_host_options(app, arguments.hosts);
    app.add("--config,--deepspeed-config FILE", arguments.job.config_path,
            "ds_config.json; default: the one packed in the model, or beside it");
    app.add("--set KEY=VALUE", arguments.job.overrides,
            "override one value, e.g. optimizer.params.lr=1e-4; repeatable");
    app.add("--data FILE", arguments.given.data, "training data, if the config names none");
    app.add("--context N", arguments.given.context,
            "tokens per sample; without data, tokens of this length are assumed")
        .at_least(1);
    app.add("--device NAME", arguments.given.device, "device of the ranks: cpu or cuda")
        .one_of({"cpu", "cuda"});
    app.add("--device-memory SIZE", arguments.mesh.device_memory,
            "the memory of a GPU, e.g. 24GiB, or its name: " + plan::known_devices());
    app.add("--op-library FILE", arguments.given.op_libraries, kOpLibraryHelp);
    app.add("--trust-model", arguments.job.trust_model, kTrustModelHelp);
    app.add("--segments N", arguments.job.segments,
            "number of segments to cut the model into; 0: by whole layers");
    app.add("--instructions", arguments.instructions, "list every instruction and every segment");
    app.add("--lr", arguments.learning_rate,
            "draw the learning rate over the steps, instead of the plan");
    app.add("--json", arguments.json, "one JSON object, with the instructions of every rank");
    app.add(job::kMeasureBesideOption, arguments.beside_ranks).hidden();
}

void add_tensor_options(CommandLine& app, PlanArguments& arguments) {
    app.group("instead of the plan, one of");
    app.add("--forecast", arguments.forecast,
            "predict the time of a step: segments and updates are measured on this machine; for a "
            "GPU, they are computed from the peak rates of the GPU that --device-memory names, or "
            "from --flops-rate");
    app.add("--tune", arguments.tune,
            "list the configs that `dslaunch tune` considers, with the forecast of each, the "
            "shortest step first")
        .excludes("--forecast");
    app.add("--compare WHAT", arguments.compare,
            "shard: bytes and balance of each kind of sharding; cache: what offload moves with "
            "other cache rules and numbers of swap buffers")
        .one_of({"shard", "cache"});
    app.add("--tensor N", arguments.tensor.rules.size, "how N ranks would share each layer")
        .range(1, 1024);
    app.add("--tensor-rule PATTERN=RULE", arguments.tensor_rules,
            "rule for parameters whose name matches PATTERN, with `*` for any characters; RULE is "
            "column, row, vocabulary or replicated; repeatable, the first match is used")
        .needs("--tensor");
    app.add("--share-positions", arguments.tensor.rules.share_positions,
            "with --tensor: each rank computes its share of the positions between the layers "
            "that are split")
        .needs("--tensor");
    app.add("--sequence N", arguments.sequence,
            "how N ranks would share the positions of each sample (in attention, they share heads "
            "instead)")
        .range(1, 1024);
    app.add("!--no-check", arguments.tensor.check,
            "with --tensor or --sequence: do not compare the split model with the whole one on a "
            "batch in fp64");
}

void add_mesh_options(CommandLine& app, PlanArguments& arguments) {
    MeshArguments& mesh = arguments.mesh;
    app.add("--stages N", mesh.wish.stages,
            "plan the model as a pipeline of N stages, and compare all schedules; with --tensor "
            "and --sequence: as a mesh")
        .range(1, 4096)
        .excludes("--compare");
    app.add("--search", mesh.search, "find the best meshes of ranks for the hosts and the model")
        .excludes("--compare");
    app.group("with --stages or --search; --flops-rate and --link-rate also with --forecast");
    app.add("--schedule NAME", mesh.schedule,
            "only this schedule: gpipe, 1f1b, interleaved, zb-h1 or zb-v")
        .one_of({"gpipe", "1f1b", "interleaved", "zb-h1", "zb-v"});
    app.add("--chunks N", mesh.wish.chunks,
            "with interleaved: number of chunks of each stage; default: 2")
        .range(1, 64);
    app.add("--micro-batches N", mesh.wish.micro_batches,
            "number of micro batches in a step (with --search: in the global batch); default: the "
            "config's accumulation steps")
        .range(1, 65536);
    app.add("--cuts LIST", mesh.wish.first_segments,
            "segments at which the parts of the pipeline after the first one begin, e.g. 3,6,9; "
            "default: chosen by cost");
    app.add("--svg FILE", mesh.svg_path, "draw the schedule, or the fastest one, into this file");
    app.add("--force", mesh.force, "let --svg replace an existing file");
    app.add("--simulate N", mesh.simulated_ranks,
            "show what a step costs if 1, 2, 4, … copies of the pipeline run on up to N ranks")
        .range(1, 65536);
    app.add("--flops-rate R", mesh.flops_per_s,
            "FLOP/s of a rank, used to compute the times of segments; default: the times are "
            "measured here")
        .positive();
    app.add("--link-rate R", mesh.link_bytes_per_s,
            "bytes/s between two hosts, or two GPUs; default: transfers between them count as 0 s")
        .positive();
    app.add("--rank-memory GIB", mesh.memory_gib, "memory of a rank; default: no limit").positive();
    app.add("--host-memory GIB", mesh.host_memory_gib,
            "memory of a host, for --search; default: this machine's")
        .positive();
}

// Refuses options that make no sense for this form of plan.
void check_mesh_options(const CommandLine& app, const MeshArguments& mesh) {
    const bool meshes = mesh.wish.stages > 0 || mesh.search;
    const auto forbid = [&](const char* option, bool has_meaning, const char* needed) {
        if (app.count(option) > 0 && !has_meaning)
            fail(ExitCode::kUsage, "{} needs {}", option, needed);
    };
    for (const char* option : {"--schedule", "--micro-batches"})
        forbid(option, meshes, "--stages or --search");
    for (const char* option : {"--flops-rate", "--link-rate"})
        forbid(option, meshes || app.count("--forecast") > 0, "--stages, --search or --forecast");
    const bool pipelines = mesh.wish.stages > 0 && !mesh.search;
    for (const char* option : {"--chunks", "--simulate", "--rank-memory"})
        forbid(option, pipelines, "--stages without --search");
    const bool alone = pipelines && mesh.tensor.size == 1 && mesh.sequence == 1;
    for (const char* option : {"--cuts", "--svg"})
        forbid(option, alone, "--stages without --search, --tensor and --sequence");
    forbid("--host-memory", mesh.search, "--search");
    forbid("--sequence", meshes || app.count("--tensor") == 0,
           "--stages or --search if --tensor is given");
    forbid("--forecast", !meshes && app.count("--compare") + app.count("--tensor") == 0,
           "the plan of a job, without --stages, --search, --tensor and --compare");
}

// Sets the ranks of the job: for a mesh, the ranks of its data axis; for a search, all ranks.
void take_mesh_ranks(PlanArguments& arguments, bool ranks_given) {
    MeshArguments& mesh = arguments.mesh;
    PlanHosts& hosts = arguments.hosts;
    mesh.json = arguments.json;
    arguments.job.plan_meshes = true;
    // Without this, a pipeline in the config would be planned in addition.
    for (const char* key : {"dslaunch.pipeline=null", "pipeline=null"})
        arguments.job.overrides.push_back(key);
    const int copy = mesh.search ? 1 : mesh.copy_ranks();
    if (!ranks_given && !hosts.named()) hosts.world_size = copy;
    const auto check = [&](const std::string& what, int ranks) {
        if (ranks % copy != 0)
            fail(ExitCode::kUsage,
                 "{} {}: {} stages x tensor {} x sequence {} need a multiple of "
                 "{} ranks",
                 what, ranks, mesh.wish.stages, mesh.tensor.size, mesh.sequence, copy);
    };
    check(hosts.named() ? "the slots of " + printable(hosts.hostfile) + " are" : "--world-size",
          hosts.world_size);
    check("--simulate", mesh.simulated_ranks);
    if (mesh.simulated_ranks > hosts.ranks_max())
        fail(ExitCode::kUsage,
             "--simulate {}: {} has only {} slots; to simulate more ranks, remove the hostfile and "
             "set --ranks-per-node",
             mesh.simulated_ranks, printable(hosts.hostfile), hosts.ranks_max());
    mesh.hosts = hosts;
    arguments.node_sizes = {hosts.world_size / copy};
}

void override_config(PlanArguments& arguments) {
    std::vector<std::string>& overrides = arguments.job.overrides;
    if (!arguments.given.op_libraries.empty())
        overrides.push_back(config::op_libraries_override(arguments.given.op_libraries));
    if (!arguments.given.device.empty())
        overrides.push_back("dslaunch.device=" + arguments.given.device);
    if (!arguments.given.data.empty())
        overrides.push_back("dslaunch.data.train=" + json_quote(arguments.given.data));
    if (arguments.given.context > 0)
        overrides.push_back(fmt::format("dslaunch.data.context={}", arguments.given.context));
}

}  // namespace

runtime::Topology place_of(const PlanArguments& arguments, int rank) {
    return runtime::Topology::of_rank(arguments.node_sizes, rank);
}

void add_plan_options(CommandLine& app, PlanArguments& arguments) {
    add_job_options(app, arguments);
    add_tensor_options(app, arguments);
    add_mesh_options(app, arguments);
}

void settle_plan_options(const CommandLine& app, PlanArguments& arguments) {
    arguments.job.model_path = storage::model_form_at(arguments.job.model_path);
    for (const std::string& rule : arguments.tensor_rules)
        arguments.tensor.rules.patterns.push_back(parse_tensor_rule_option(rule));
    MeshArguments& mesh = arguments.mesh;
    mesh.tensor = arguments.tensor.rules;
    mesh.tensor_given = app.count("--tensor") > 0;
    mesh.sequence = std::max(1, arguments.sequence);
    check_mesh_options(app, mesh);
    find_plan_hosts(app, arguments.hosts);
    arguments.node_sizes = arguments.hosts.node_sizes(arguments.hosts.world_size);
    if (mesh.wish.stages > 0 || mesh.search)
        take_mesh_ranks(arguments, app.count("--world-size") > 0);
    if (!arguments.mesh.device_memory.empty())
        static_cast<void>(plan::device_room_of(arguments.mesh.device_memory));
    override_config(arguments);
}

}  // namespace dslaunch::worker
